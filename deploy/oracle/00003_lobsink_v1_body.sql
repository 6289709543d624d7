-- The body of package lobsink_v1. Not run on Oracle.
--
-- Run by SQL*Plus or SQLcl in the owner's schema, or by `lobsink schema apply`.
-- Parameters and answers are described in the specification.
--
-- A number that is compared is never NULL: columns are NOT NULL, and the client
-- binds 64-bit integers. Where a comparison decides, what would be NULL leads to
-- the answer that writes nothing.

SET DEFINE OFF
SET SQLBLANKLINES ON
WHENEVER SQLERROR EXIT FAILURE ROLLBACK

-- lobsink:layout begin
-- The body below writes to lobsink_documents.
BEGIN
  FOR l IN (SELECT kind FROM lobsink_layout WHERE kind <> 'documents') LOOP
    RAISE_APPLICATION_ERROR(-20800, 'the text of documents is not in lobsink_documents, the layout is ' || l.kind
      || ': print the scripts with lobsink schema print or schema attach, which know it');
  END LOOP;
END;
/
-- lobsink:layout end

CREATE OR REPLACE PACKAGE BODY lobsink_v1 AS

  -- A document row. Without a row: rid is NULL and all numbers are 0.
  TYPE t_row IS RECORD (
    rid         ROWID,
    generation  NUMBER,
    state       NUMBER,
    life        NUMBER,
    last_seq    NUMBER,
    first_seq   NUMBER,
    fragments   NUMBER,
    holes       NUMBER,
    late        NUMBER,
    bytes       NUMBER,
    units       NUMBER,
    chunks      NUMBER,
    crc         NUMBER,
    reason      VARCHAR2(2000 BYTE));

  TYPE t_fence IS RECORD (
    life             NUMBER,
    epoch            NUMBER,
    claim_id         VARCHAR2(64 BYTE),
    flush            NUMBER,
    checkpoint       NUMBER,
    checkpoint_time  NUMBER,
    highest          NUMBER,
    highest_time     NUMBER);

  -- The clock: at the call. In UTC, as the time zone of SYSTIMESTAMP is that of
  -- the host, which differs between nodes and changes twice a year.
  FUNCTION now_ns RETURN NUMBER IS
    l_age INTERVAL DAY(9) TO SECOND(9) := SYS_EXTRACT_UTC(SYSTIMESTAMP) - TIMESTAMP '1970-01-01 00:00:00';
  BEGIN
    RETURN TRUNC((EXTRACT(DAY FROM l_age) * 86400 + EXTRACT(HOUR FROM l_age) * 3600
                + EXTRACT(MINUTE FROM l_age) * 60 + EXTRACT(SECOND FROM l_age)) * 1000000000);
  END now_ns;

  -- Whether an error is the fault of one document. Some always are. With p_isolate
  -- all are but those that are known to come from the database as a whole.
  -- NO_DATA_FOUND is +100 in SQLCODE: a bug of ours, never a document's fault.
  FUNCTION is_of_document(p_code IN PLS_INTEGER, p_isolate IN NUMBER) RETURN BOOLEAN IS
  BEGIN
    RETURN p_code < 0
      AND (p_code IN (-1400, -1401, -1407, -1422, -1438, -1461, -1722, -2290, -2291, -6502, -12899, -21560, -22835, -29275,
                      -20813, -20814, -20815, -20816, -20817)
        OR (p_isolate = 1
          AND p_code NOT IN (-1, -18, -20, -28, -31, -40, -54, -60, -257, -1000, -1012, -1013, -1033, -1034, -1089, -1092, -1536, -1555,
                             -1591, -1628, -1631, -1652, -1653, -1654, -1658, -1659, -1688, -1691, -1692, -1693, -1950, -2049, -3113,
                             -3114, -3135, -4020, -4021, -4030, -4031, -4036, -4061, -4065, -4068, -6508, -6513, -6533, -8177,
                             -12954, -14400, -16000, -16456, -19809, -19815, -25402, -25408, -30006, -30036, -56720, -65114,
                             -20810)));
  END is_of_document;

  -- Adds a text to packed ones and returns its length; -1: there is no room.
  FUNCTION pack(p_texts IN OUT NOCOPY VARCHAR2, p_text IN VARCHAR2) RETURN NUMBER IS
    l_bytes PLS_INTEGER := NVL(LENGTHB(p_text), 0);
  BEGIN
    IF NVL(LENGTHB(p_texts), 0) + l_bytes > 32767 THEN
      RETURN -1;
    END IF;
    p_texts := p_texts || p_text;
    RETURN l_bytes;
  END pack;

  -- Where the text of documents is. lobsink schema exchanges these procedures for
  -- another layout.
  -- lobsink:body begin

  -- open_body gives the LOB for appending, locked. It makes it if there is none.
  PROCEDURE open_body(p_rid IN ROWID, p_partition IN NUMBER, p_key IN VARCHAR2, p_slot IN NUMBER, p_generation IN NUMBER,
                      p_body OUT NOCOPY CLOB) IS
  BEGIN
    SELECT body INTO p_body FROM lobsink_documents WHERE ROWID = p_rid FOR UPDATE WAIT 5;
  END open_body;

  -- close_body is called when text was appended.
  PROCEDURE close_body(p_partition IN NUMBER, p_key IN VARCHAR2) IS
  BEGIN
    NULL;
  END close_body;

  -- find_body gives the LOB for reading; NULL: there is none.
  PROCEDURE find_body(p_rid IN ROWID, p_partition IN NUMBER, p_key IN VARCHAR2, p_generation IN NUMBER,
                      p_body OUT NOCOPY CLOB) IS
  BEGIN
    SELECT body INTO p_body FROM lobsink_documents WHERE ROWID = p_rid;
  END find_body;

  -- take_body is called when generation p_old, whose row is gone, was replaced by
  -- p_generation, whose row is p_rid. p_old_units is what lobsink wrote of the old one.
  PROCEDURE take_body(p_rid IN ROWID, p_partition IN NUMBER, p_key IN VARCHAR2, p_old IN NUMBER, p_old_units IN NUMBER,
                      p_generation IN NUMBER) IS
  BEGIN
    NULL;
  END take_body;

  -- drop_body removes the text of a document whose row is going to be deleted.
  PROCEDURE drop_body(p_partition IN NUMBER, p_key IN VARCHAR2, p_generation IN NUMBER) IS
  BEGIN
    NULL;
  END drop_body;

  -- lobsink:body end

  PROCEDURE read_binding(p_database_id OUT VARCHAR2, p_life OUT NUMBER, p_stream OUT VARCHAR2, p_created OUT NUMBER,
                         p_partitions OUT NUMBER) IS
  BEGIN
    SELECT database_id, life, stream, NVL(created, 0), NVL(partitions, 0)
      INTO p_database_id, p_life, p_stream, p_created, p_partitions
      FROM lobsink_binding
     WHERE id = 1;
  END read_binding;

  FUNCTION no_fence RETURN t_fence IS
    l_fence t_fence;
  BEGIN
    SELECT life INTO l_fence.life FROM lobsink_binding WHERE id = 1;
    l_fence.epoch := 0;
    l_fence.flush := 0;
    l_fence.checkpoint := 0;
    l_fence.checkpoint_time := 0;
    l_fence.highest := 0;
    l_fence.highest_time := 0;
    RETURN l_fence;
  END no_fence;

  FUNCTION read_fence(p_partition IN NUMBER) RETURN t_fence IS
    l_fence t_fence;
  BEGIN
    SELECT life, epoch, claim_id, flush, checkpoint, checkpoint_time, highest, highest_time
      INTO l_fence
      FROM lobsink_fences
     WHERE partition_no = p_partition;
    RETURN l_fence;
  EXCEPTION
    WHEN NO_DATA_FOUND THEN
      RETURN no_fence;
  END read_fence;

  -- Takes the lock of a fence row. What is read after it sees all that was committed
  -- before the lock was given.
  FUNCTION lock_fence(p_partition IN NUMBER) RETURN t_fence IS
    l_fence t_fence;
  BEGIN
    SELECT life, epoch, claim_id, flush, checkpoint, checkpoint_time, highest, highest_time
      INTO l_fence
      FROM lobsink_fences
     WHERE partition_no = p_partition
       FOR UPDATE WAIT 5;
    RETURN l_fence;
  EXCEPTION
    WHEN NO_DATA_FOUND THEN
      RETURN no_fence;
  END lock_fence;

  PROCEDURE give_fence(p_fence IN t_fence, p_life OUT NUMBER, p_epoch OUT NUMBER, p_claim_id OUT VARCHAR2, p_flush OUT NUMBER,
                       p_checkpoint OUT NUMBER, p_checkpoint_time OUT NUMBER, p_highest OUT NUMBER, p_highest_time OUT NUMBER) IS
  BEGIN
    p_life := p_fence.life;
    p_epoch := p_fence.epoch;
    p_claim_id := p_fence.claim_id;
    p_flush := p_fence.flush;
    p_checkpoint := p_fence.checkpoint;
    p_checkpoint_time := p_fence.checkpoint_time;
    p_highest := p_fence.highest;
    p_highest_time := p_fence.highest_time;
  END give_fence;

  FUNCTION no_row RETURN t_row IS
    l_row t_row;
  BEGIN
    l_row.generation := 0;
    l_row.state := 0;
    l_row.life := 0;
    l_row.last_seq := 0;
    l_row.first_seq := 0;
    l_row.fragments := 0;
    l_row.holes := 0;
    l_row.late := 0;
    l_row.bytes := 0;
    l_row.units := 0;
    l_row.chunks := 0;
    l_row.crc := 0;
    RETURN l_row;
  END no_row;

  FUNCTION read_row(p_partition IN NUMBER, p_key IN VARCHAR2, p_slot IN NUMBER) RETURN t_row IS
    l_row t_row;
  BEGIN
    SELECT ROWID, generation, state, life, last_seq, first_seq, fragments, holes, late, bytes, units, chunks, crc, reason
      INTO l_row
      FROM lobsink_documents
     WHERE doc_key = p_key AND slot = p_slot AND partition_no = p_partition;
    RETURN l_row;
  EXCEPTION
    WHEN NO_DATA_FOUND THEN
      RETURN no_row;
  END read_row;

  -- Whether the mark of a row is at or above a message.
  FUNCTION has_reached(p_row IN t_row, p_life IN NUMBER, p_seq IN NUMBER) RETURN BOOLEAN IS
  BEGIN
    RETURN p_row.life > p_life OR (p_row.life = p_life AND p_row.last_seq >= p_seq);
  END has_reached;

  -- Writes pieces to the end of a LOB that has p_units, one LOB write for each, and
  -- counts what was written.
  PROCEDURE append_pieces(p_body IN OUT NOCOPY CLOB, p_data IN t_raw, p_from IN PLS_INTEGER, p_to IN PLS_INTEGER,
                          p_bytes IN OUT NUMBER, p_units IN OUT NUMBER) IS
    l_text VARCHAR2(32767 BYTE);
    l_n    PLS_INTEGER;
  BEGIN
    IF NVL(DBMS_LOB.GETLENGTH(p_body), -1) <> p_units THEN
      RAISE_APPLICATION_ERROR(-20813, 'the LOB has ' || DBMS_LOB.GETLENGTH(p_body) || ' units, lobsink wrote ' || p_units);
    END IF;
    FOR k IN p_from .. p_to LOOP
      -- No conversion: the database is AL32UTF8, and the client has looked at the
      -- text. LENGTH2 counts as LOBs do; LENGTH would lose text after an emoji.
      l_text := UTL_RAW.CAST_TO_VARCHAR2(p_data(k));
      l_n := LENGTH2(l_text);
      IF l_n IS NULL THEN
        RAISE_APPLICATION_ERROR(-20810, 'a piece is empty');
      END IF;
      DBMS_LOB.WRITEAPPEND(p_body, l_n, l_text);
      p_units := p_units + l_n;
      p_bytes := p_bytes + UTL_RAW.LENGTH(p_data(k));
    END LOOP;
    IF NVL(DBMS_LOB.GETLENGTH(p_body), -1) <> p_units THEN
      RAISE_APPLICATION_ERROR(-20814, 'the LOB grew to ' || DBMS_LOB.GETLENGTH(p_body) || ' units, not ' || p_units);
    END IF;
  END append_pieces;

  PROCEDURE insert_row(p_partition IN NUMBER, p_key IN VARCHAR2, p_slot IN NUMBER, p_row IN t_row, p_rid OUT ROWID) IS
    l_now NUMBER := now_ns;
  BEGIN
    INSERT INTO lobsink_documents (
           doc_key, slot, partition_no, generation, state, life, last_seq, first_seq, fragments, holes, late,
           bytes, units, chunks, crc, reason, created_at, updated_at)
    VALUES (p_key, p_slot, p_partition, p_row.generation, p_row.state, p_row.life, p_row.last_seq, p_row.first_seq,
            p_row.fragments, p_row.holes, p_row.late, p_row.bytes, p_row.units, p_row.chunks, p_row.crc,
            p_row.reason, l_now, l_now)
    RETURNING ROWID INTO p_rid;
  END insert_row;

  PROCEDURE update_row(p_rid IN ROWID, p_row IN t_row) IS
    l_now NUMBER := now_ns;
  BEGIN
    UPDATE lobsink_documents
       SET generation = p_row.generation, state = p_row.state, life = p_row.life, last_seq = p_row.last_seq,
           first_seq = p_row.first_seq, fragments = p_row.fragments, holes = p_row.holes, late = p_row.late,
           bytes = p_row.bytes, units = p_row.units, chunks = p_row.chunks, crc = p_row.crc, reason = p_row.reason,
           updated_at = l_now
     WHERE ROWID = p_rid;
    IF SQL%ROWCOUNT <> 1 THEN
      RAISE_APPLICATION_ERROR(-20810, 'the document row has gone');
    END IF;
  END update_row;

  -- Whether what was written is what a row says.
  PROCEDURE check_counts(p_row IN t_row, p_bytes IN NUMBER, p_units IN NUMBER) IS
  BEGIN
    IF p_bytes <> p_row.bytes OR p_units <> p_row.units THEN
      RAISE_APPLICATION_ERROR(-20814, 'the pieces lead to ' || p_bytes || ' bytes and ' || p_units || ' units, not '
        || p_row.bytes || ' and ' || p_row.units);
    END IF;
  END check_counts;

  -- Writes the row after a group, and its pieces to the end of the LOB. Only for a
  -- caller that holds the lock of the fence row: nobody else inserts then, and a
  -- duplicate is a document of another partition, which fails the call.
  PROCEDURE append(p_partition IN NUMBER, p_key IN VARCHAR2, p_stored IN t_row, p_after IN t_row,
                   p_data IN t_raw, p_from IN PLS_INTEGER, p_to IN PLS_INTEGER) IS
    l_rid   ROWID := p_stored.rid;
    l_bytes NUMBER := p_stored.bytes;
    l_units NUMBER := p_stored.units;
    l_body  CLOB;
  BEGIN
    IF l_rid IS NULL THEN
      insert_row(p_partition, p_key, 0, p_after, l_rid);
    ELSE
      update_row(l_rid, p_after);
    END IF;
    -- A document that is complete and empty has a LOB as well.
    IF p_from <= p_to OR (p_after.state = 2 AND p_after.bytes = 0) THEN
      open_body(l_rid, p_partition, p_key, 0, p_after.generation, l_body);
      append_pieces(l_body, p_data, p_from, p_to, l_bytes, l_units);
      IF p_from <= p_to THEN
        close_body(p_partition, p_key);
      END IF;
    END IF;
    check_counts(p_after, l_bytes, l_units);
  END append;

  PROCEDURE environment(
    p_schema_version    OUT NUMBER,
    p_role              OUT VARCHAR2,
    p_character_set     OUT VARCHAR2,
    p_database          OUT VARCHAR2,
    p_container         OUT VARCHAR2,
    p_instance          OUT VARCHAR2,
    p_service           OUT VARCHAR2) IS
  BEGIN
    SELECT NVL(MAX(version), 0) INTO p_schema_version FROM lobsink_schema;
    SELECT value INTO p_character_set FROM nls_database_parameters WHERE parameter = 'NLS_CHARACTERSET';
    p_role := SYS_CONTEXT('USERENV', 'DATABASE_ROLE');
    p_database := SYS_CONTEXT('USERENV', 'DB_UNIQUE_NAME');
    p_container := SYS_CONTEXT('USERENV', 'CON_NAME');
    p_instance := SYS_CONTEXT('USERENV', 'INSTANCE_NAME');
    p_service := SYS_CONTEXT('USERENV', 'SERVICE_NAME');
  END environment;

  PROCEDURE bind(
    p_stream            IN  VARCHAR2,
    p_created           IN  NUMBER,
    p_partitions        IN  NUMBER,
    p_database_id       OUT VARCHAR2,
    p_life              OUT NUMBER,
    p_stored_stream     OUT VARCHAR2,
    p_stored_created    OUT NUMBER,
    p_stored_partitions OUT NUMBER) IS
    l_stream VARCHAR2(255 BYTE);
  BEGIN
    ROLLBACK;
    read_binding(p_database_id, p_life, p_stored_stream, p_stored_created, p_stored_partitions);
    IF p_life > 0 THEN
      RETURN;
    END IF;
    SELECT stream INTO l_stream FROM lobsink_binding WHERE id = 1 FOR UPDATE WAIT 5;
    IF l_stream IS NULL THEN
      UPDATE lobsink_binding SET stream = p_stream, created = p_created, partitions = p_partitions, life = 1 WHERE id = 1;
      FOR n IN 0 .. p_partitions - 1 LOOP
        INSERT INTO lobsink_fences (partition_no, life, epoch, flush, checkpoint, checkpoint_time, highest, highest_time)
        VALUES (n, 1, 0, 0, 0, 0, 0, 0);
        INSERT INTO lobsink_leases (partition_no, epoch, lease_until) VALUES (n, 0, 0);
      END LOOP;
    END IF;
    read_binding(p_database_id, p_life, p_stored_stream, p_stored_created, p_stored_partitions);
  EXCEPTION
    WHEN OTHERS THEN
      ROLLBACK;
      RAISE;
  END bind;

  PROCEDURE binding(
    p_database_id       OUT VARCHAR2,
    p_life              OUT NUMBER,
    p_stored_stream     OUT VARCHAR2,
    p_stored_created    OUT NUMBER,
    p_stored_partitions OUT NUMBER) IS
  BEGIN
    read_binding(p_database_id, p_life, p_stored_stream, p_stored_created, p_stored_partitions);
  END binding;

  PROCEDURE roster(
    p_after             IN  VARCHAR2,
    p_id_bytes          OUT t_num,
    p_name_bytes        OUT t_num,
    p_version_bytes     OUT t_num,
    p_left              OUT t_num,
    p_texts             OUT VARCHAR2,
    p_more              OUT NUMBER,
    p_lease_partition   OUT t_num,
    p_lease_id_bytes    OUT t_num,
    p_lease_left        OUT t_num,
    p_lease_texts       OUT VARCHAR2) IS
    l_now NUMBER := now_ns;
    i     PLS_INTEGER := 0;
  BEGIN
    p_more := 0;
    FOR m IN (SELECT id, name, version, seen_until FROM lobsink_members WHERE seen_until > l_now ORDER BY id) LOOP
      CONTINUE WHEN m.id <= p_after;
      IF NVL(LENGTHB(p_texts), 0) + LENGTHB(m.id || m.name || m.version) > 32767 THEN
        p_more := 1;
        EXIT;
      END IF;
      i := i + 1;
      p_id_bytes(i) := pack(p_texts, m.id);
      p_name_bytes(i) := pack(p_texts, m.name);
      p_version_bytes(i) := pack(p_texts, m.version);
      p_left(i) := m.seen_until - l_now;
    END LOOP;
    i := 0;
    FOR l IN (SELECT partition_no, member_id, lease_until FROM lobsink_leases WHERE member_id IS NOT NULL ORDER BY partition_no) LOOP
      i := i + 1;
      p_lease_partition(i) := l.partition_no;
      p_lease_left(i) := l.lease_until - l_now;
      p_lease_id_bytes(i) := pack(p_lease_texts, l.member_id);
      IF p_lease_id_bytes(i) < 0 THEN
        RAISE_APPLICATION_ERROR(-20810, 'there is no room for the leases of so many partitions');
      END IF;
    END LOOP;
  END roster;

  PROCEDURE attend(
    p_id                IN  VARCHAR2,
    p_name              IN  VARCHAR2,
    p_version           IN  VARCHAR2,
    p_lease             IN  NUMBER,
    p_id_bytes          OUT t_num,
    p_name_bytes        OUT t_num,
    p_version_bytes     OUT t_num,
    p_left              OUT t_num,
    p_texts             OUT VARCHAR2,
    p_more              OUT NUMBER,
    p_lease_partition   OUT t_num,
    p_lease_id_bytes    OUT t_num,
    p_lease_left        OUT t_num,
    p_lease_texts       OUT VARCHAR2) IS
    l_now NUMBER := now_ns;
  BEGIN
    ROLLBACK;
    IF p_lease > 0 THEN
      UPDATE lobsink_members SET name = p_name, version = p_version, seen_until = l_now + p_lease WHERE id = p_id;
      IF SQL%ROWCOUNT = 0 THEN
        INSERT INTO lobsink_members (id, name, version, seen_until) VALUES (p_id, p_name, p_version, l_now + p_lease);
      END IF;
    ELSE
      DELETE FROM lobsink_members WHERE id = p_id;
    END IF;
    -- Members that tidy up at once do not wait for each other.
    FOR dead IN (SELECT id FROM lobsink_members WHERE seen_until <= l_now FOR UPDATE SKIP LOCKED) LOOP
      DELETE FROM lobsink_members WHERE id = dead.id;
    END LOOP;
    roster(NULL, p_id_bytes, p_name_bytes, p_version_bytes, p_left, p_texts, p_more,
           p_lease_partition, p_lease_id_bytes, p_lease_left, p_lease_texts);
  EXCEPTION
    WHEN OTHERS THEN
      ROLLBACK;
      RAISE;
  END attend;

  PROCEDURE leave(
    p_id                IN  VARCHAR2) IS
  BEGIN
    ROLLBACK;
    DELETE FROM lobsink_members WHERE id = p_id;
    UPDATE lobsink_leases SET member_id = NULL, claim_id = NULL, lease_until = 0 WHERE member_id = p_id;
  EXCEPTION
    WHEN OTHERS THEN
      ROLLBACK;
      RAISE;
  END leave;

  PROCEDURE claim(
    p_partition         IN  NUMBER,
    p_member_id         IN  VARCHAR2,
    p_claim_id          IN  VARCHAR2,
    p_lease             IN  NUMBER,
    p_outcome           OUT NUMBER,
    p_holder            OUT VARCHAR2,
    p_held_for          OUT NUMBER,
    p_stored_life       OUT NUMBER,
    p_stored_epoch      OUT NUMBER,
    p_stored_claim_id   OUT VARCHAR2,
    p_stored_flush      OUT NUMBER,
    p_stored_checkpoint OUT NUMBER,
    p_stored_checkpoint_time OUT NUMBER,
    p_stored_highest    OUT NUMBER,
    p_stored_highest_time OUT NUMBER) IS
    l_fence t_fence;
    l_now   NUMBER;
    l_until NUMBER;

    -- Whether somebody else holds the lease.
    FUNCTION is_held RETURN BOOLEAN IS
    BEGIN
      l_now := now_ns;
      p_held_for := GREATEST(l_until - l_now, 0);
      IF p_holder <> p_member_id AND p_held_for > 0 THEN
        RETURN TRUE;
      END IF;
      p_holder := NULL;
      p_held_for := 0;
      RETURN FALSE;
    END is_held;

    PROCEDURE answer(p_answer IN NUMBER) IS
    BEGIN
      p_outcome := p_answer;
      give_fence(l_fence, p_stored_life, p_stored_epoch, p_stored_claim_id, p_stored_flush, p_stored_checkpoint,
                 p_stored_checkpoint_time, p_stored_highest, p_stored_highest_time);
    END answer;
  BEGIN
    ROLLBACK;
    p_held_for := 0;

    -- Whoever cannot have the lease does not queue for the fence row.
    BEGIN
      SELECT member_id, lease_until INTO p_holder, l_until FROM lobsink_leases WHERE partition_no = p_partition;
    EXCEPTION
      WHEN NO_DATA_FOUND THEN
        l_fence := no_fence;
        l_fence.life := 0;
        answer(3);
        RETURN;
    END;
    IF is_held THEN
      l_fence := read_fence(p_partition);
      answer(2);
      RETURN;
    END IF;

    l_fence := lock_fence(p_partition);

    -- The lease may have been taken or renewed meanwhile.
    BEGIN
      SELECT member_id, lease_until INTO p_holder, l_until
        FROM lobsink_leases
       WHERE partition_no = p_partition
         FOR UPDATE SKIP LOCKED;
    EXCEPTION
      WHEN NO_DATA_FOUND THEN
        ROLLBACK;
        p_holder := NULL;
        answer(4);
        RETURN;
    END;
    IF is_held THEN
      ROLLBACK;
      answer(2);
      RETURN;
    END IF;

    l_fence.epoch := l_fence.epoch + 1;
    l_fence.claim_id := p_claim_id;
    l_fence.flush := 0;
    UPDATE lobsink_leases
       SET member_id = p_member_id, epoch = l_fence.epoch, claim_id = p_claim_id, lease_until = l_now + p_lease
     WHERE partition_no = p_partition;
    UPDATE lobsink_fences
       SET epoch = l_fence.epoch, claim_id = p_claim_id, flush = 0
     WHERE partition_no = p_partition;
    answer(1);
  EXCEPTION
    WHEN OTHERS THEN
      ROLLBACK;
      RAISE;
  END claim;

  -- Takes the lock of the lease row if it is of this claim, and does not wait for
  -- it. The answers of renew and release_claim: 1 locked, 2 of another claim, 4 busy.
  FUNCTION lock_lease(p_partition IN NUMBER, p_member_id IN VARCHAR2, p_epoch IN NUMBER, p_claim_id IN VARCHAR2) RETURN NUMBER IS
    l_there PLS_INTEGER;
  BEGIN
    SELECT COUNT(*) INTO l_there
      FROM lobsink_leases
     WHERE partition_no = p_partition AND member_id = p_member_id AND epoch = p_epoch AND claim_id = p_claim_id;
    IF l_there = 0 THEN
      RETURN 2;
    END IF;
    -- Locked by a claim that takes it, or by another call of the same claim.
    SELECT 1 INTO l_there
      FROM lobsink_leases
     WHERE partition_no = p_partition AND member_id = p_member_id AND epoch = p_epoch AND claim_id = p_claim_id
       FOR UPDATE SKIP LOCKED;
    RETURN 1;
  EXCEPTION
    WHEN NO_DATA_FOUND THEN
      RETURN 4;
  END lock_lease;

  PROCEDURE renew(
    p_partition         IN  NUMBER,
    p_member_id         IN  VARCHAR2,
    p_epoch             IN  NUMBER,
    p_claim_id          IN  VARCHAR2,
    p_lease             IN  NUMBER,
    p_outcome           OUT NUMBER,
    p_stored_life       OUT NUMBER,
    p_stored_epoch      OUT NUMBER,
    p_stored_claim_id   OUT VARCHAR2,
    p_stored_flush      OUT NUMBER,
    p_stored_checkpoint OUT NUMBER,
    p_stored_checkpoint_time OUT NUMBER,
    p_stored_highest    OUT NUMBER,
    p_stored_highest_time OUT NUMBER) IS
    l_now NUMBER := now_ns;
  BEGIN
    ROLLBACK;
    p_outcome := lock_lease(p_partition, p_member_id, p_epoch, p_claim_id);
    IF p_outcome = 1 THEN
      UPDATE lobsink_leases SET lease_until = l_now + p_lease WHERE partition_no = p_partition;
    END IF;
    give_fence(read_fence(p_partition), p_stored_life, p_stored_epoch, p_stored_claim_id, p_stored_flush, p_stored_checkpoint,
               p_stored_checkpoint_time, p_stored_highest, p_stored_highest_time);
  EXCEPTION
    WHEN OTHERS THEN
      ROLLBACK;
      RAISE;
  END renew;

  PROCEDURE release_claim(
    p_partition         IN  NUMBER,
    p_member_id         IN  VARCHAR2,
    p_epoch             IN  NUMBER,
    p_claim_id          IN  VARCHAR2,
    p_outcome           OUT NUMBER) IS
  BEGIN
    ROLLBACK;
    p_outcome := lock_lease(p_partition, p_member_id, p_epoch, p_claim_id);
    IF p_outcome = 1 THEN
      UPDATE lobsink_leases SET member_id = NULL, claim_id = NULL, lease_until = 0 WHERE partition_no = p_partition;
    END IF;
  EXCEPTION
    WHEN OTHERS THEN
      ROLLBACK;
      RAISE;
  END release_claim;

  PROCEDURE fence(
    p_partition         IN  NUMBER,
    p_stored_life       OUT NUMBER,
    p_stored_epoch      OUT NUMBER,
    p_stored_claim_id   OUT VARCHAR2,
    p_stored_flush      OUT NUMBER,
    p_stored_checkpoint OUT NUMBER,
    p_stored_checkpoint_time OUT NUMBER,
    p_stored_highest    OUT NUMBER,
    p_stored_highest_time OUT NUMBER) IS
  BEGIN
    give_fence(read_fence(p_partition), p_stored_life, p_stored_epoch, p_stored_claim_id, p_stored_flush, p_stored_checkpoint,
               p_stored_checkpoint_time, p_stored_highest, p_stored_highest_time);
  END fence;

  PROCEDURE flush(
    p_partition         IN  NUMBER,
    p_life              IN  NUMBER,
    p_epoch             IN  NUMBER,
    p_claim_id          IN  VARCHAR2,
    p_flush             IN  NUMBER,
    p_checkpoint        IN  NUMBER,
    p_checkpoint_time   IN  NUMBER,
    p_highest           IN  NUMBER,
    p_highest_time      IN  NUMBER,
    p_isolate           IN  NUMBER,
    p_key               IN  t_key,
    p_first             IN  t_num,
    p_last              IN  t_num,
    p_was_generation    IN  t_num,
    p_was_state         IN  t_num,
    p_was_life          IN  t_num,
    p_was_seq           IN  t_num,
    p_was_bytes         IN  t_num,
    p_was_crc           IN  t_num,
    p_generation        IN  t_num,
    p_state             IN  t_num,
    p_first_seq         IN  t_num,
    p_fragments         IN  t_num,
    p_holes             IN  t_num,
    p_late              IN  t_num,
    p_bytes             IN  t_num,
    p_units             IN  t_num,
    p_chunks            IN  t_num,
    p_crc               IN  t_num,
    p_reason            IN  t_text,
    p_pieces            IN  t_num,
    p_data              IN  t_raw,
    p_outcome           OUT NUMBER,
    p_stored_life       OUT NUMBER,
    p_stored_epoch      OUT NUMBER,
    p_stored_claim_id   OUT VARCHAR2,
    p_stored_flush      OUT NUMBER,
    p_stored_checkpoint OUT NUMBER,
    p_stored_checkpoint_time OUT NUMBER,
    p_stored_highest    OUT NUMBER,
    p_stored_highest_time OUT NUMBER,
    p_lob_writes        OUT NUMBER,
    p_status            OUT t_num,
    p_code              OUT t_num,
    p_row_generation    OUT t_num,
    p_row_state         OUT t_num,
    p_row_life          OUT t_num,
    p_row_seq           OUT t_num,
    p_row_first_seq     OUT t_num,
    p_row_fragments     OUT t_num,
    p_row_holes         OUT t_num,
    p_row_late          OUT t_num,
    p_row_bytes         OUT t_num,
    p_row_units         OUT t_num,
    p_row_chunks        OUT t_num,
    p_row_crc           OUT t_num,
    p_row_reason_bytes  OUT t_num,
    p_error_bytes       OUT t_num,
    p_texts             OUT VARCHAR2) IS
    l_fence  t_fence;
    l_row    t_row;               -- the stored row of the group at hand
    l_error  VARCHAR2(1000 BYTE);
    l_next   PLS_INTEGER := 1;    -- its first piece
    l_pieces PLS_INTEGER;
    l_stored BOOLEAN := TRUE;     -- whether all groups are stored

    PROCEDURE answer(p_answer IN NUMBER) IS
    BEGIN
      p_outcome := p_answer;
      give_fence(l_fence, p_stored_life, p_stored_epoch, p_stored_claim_id, p_stored_flush, p_stored_checkpoint,
                 p_stored_checkpoint_time, p_stored_highest, p_stored_highest_time);
    END answer;

    FUNCTION is_believed(i IN PLS_INTEGER) RETURN BOOLEAN IS
    BEGIN
      RETURN l_row.generation = p_was_generation(i) AND l_row.state = p_was_state(i) AND l_row.life = p_was_life(i)
         AND l_row.last_seq = p_was_seq(i) AND l_row.bytes = p_was_bytes(i) AND l_row.crc = p_was_crc(i);
    END is_believed;

    -- The answer of a group, in the order of lobwriter.Status. What compares as NULL
    -- ends as stale.
    FUNCTION status_of(i IN PLS_INTEGER) RETURN NUMBER IS
    BEGIN
      IF has_reached(l_row, p_life, p_last(i)) THEN
        RETURN 1;
      ELSIF is_believed(i) AND NOT has_reached(l_row, p_life, p_first(i)) THEN
        IF l_row.state IN (2, 4) AND (p_pieces(i) <> 0 OR p_state(i) <> l_row.state) THEN
          RETURN 3;
        END IF;
        RETURN 4;
      END IF;
      RETURN 2;
    END status_of;

    PROCEDURE append_group(i IN PLS_INTEGER) IS
      l_after t_row;
    BEGIN
      IF p_pieces(i) < 0 THEN
        RAISE_APPLICATION_ERROR(-20815, 'the text is not valid UTF-8, or contains U+0000');
      END IF;
      l_after.generation := p_generation(i);
      l_after.state := p_state(i);
      l_after.life := p_life;
      l_after.last_seq := p_last(i);
      l_after.first_seq := p_first_seq(i);
      l_after.fragments := p_fragments(i);
      l_after.holes := p_holes(i);
      l_after.late := p_late(i);
      l_after.bytes := p_bytes(i);
      l_after.units := p_units(i);
      l_after.chunks := p_chunks(i);
      l_after.crc := p_crc(i);
      l_after.reason := p_reason(i);
      append(p_partition, p_key(i), l_row, l_after, p_data, l_next, l_next + l_pieces - 1);
      p_lob_writes := p_lob_writes + l_pieces;
    END append_group;
  BEGIN
    ROLLBACK;
    p_lob_writes := 0;

    l_fence := lock_fence(p_partition);
    IF l_fence.life = p_life AND l_fence.epoch = p_epoch AND l_fence.claim_id = p_claim_id AND l_fence.flush = p_flush THEN
      NULL;
    ELSE
      ROLLBACK;
      answer(2);
      RETURN;
    END IF;

    FOR i IN 1 .. p_key.COUNT LOOP
      l_pieces := GREATEST(p_pieces(i), 0);
      p_code(i) := 0;
      l_error := NULL;
      l_row := no_row;
      SAVEPOINT lobsink_group;
      BEGIN
        l_row := read_row(p_partition, p_key(i), 0);
        p_status(i) := status_of(i);
        IF p_status(i) = 4 THEN
          append_group(i);
          l_row := no_row;
        END IF;
      EXCEPTION
        WHEN OTHERS THEN
          p_code(i) := SQLCODE;
          l_error := SUBSTR(SQLERRM, 1, 250);
          IF NOT is_of_document(p_code(i), p_isolate) THEN
            RAISE;
          END IF;
          ROLLBACK TO SAVEPOINT lobsink_group;
          p_status(i) := 5;
      END;
      p_row_generation(i) := l_row.generation;
      p_row_state(i) := l_row.state;
      p_row_life(i) := l_row.life;
      p_row_seq(i) := l_row.last_seq;
      p_row_first_seq(i) := l_row.first_seq;
      p_row_fragments(i) := l_row.fragments;
      p_row_holes(i) := l_row.holes;
      p_row_late(i) := l_row.late;
      p_row_bytes(i) := l_row.bytes;
      p_row_units(i) := l_row.units;
      p_row_chunks(i) := l_row.chunks;
      p_row_crc(i) := l_row.crc;
      p_row_reason_bytes(i) := pack(p_texts, l_row.reason);
      p_error_bytes(i) := GREATEST(pack(p_texts, l_error), 0);  -- no room: the code has to do
      IF p_status(i) NOT IN (1, 4) THEN
        l_stored := FALSE;
      END IF;
      l_next := l_next + l_pieces;
    END LOOP;
    IF l_next <> p_data.COUNT + 1 THEN
      RAISE_APPLICATION_ERROR(-20810, 'the groups have ' || (l_next - 1) || ' pieces, the call has ' || p_data.COUNT);
    END IF;

    -- The checkpoint must not pass a fragment that is not stored.
    l_fence.flush := l_fence.flush + 1;
    IF l_stored AND p_checkpoint > l_fence.checkpoint THEN
      l_fence.checkpoint := p_checkpoint;
      l_fence.checkpoint_time := p_checkpoint_time;
    END IF;
    IF p_highest > l_fence.highest THEN
      l_fence.highest := p_highest;
      l_fence.highest_time := p_highest_time;
    END IF;
    UPDATE lobsink_fences
       SET flush = l_fence.flush, checkpoint = l_fence.checkpoint, checkpoint_time = l_fence.checkpoint_time,
           highest = l_fence.highest, highest_time = l_fence.highest_time
     WHERE partition_no = p_partition;
    IF SQL%ROWCOUNT <> 1 THEN
      RAISE_APPLICATION_ERROR(-20810, 'the fence row has gone');
    END IF;
    answer(1);
  EXCEPTION
    WHEN OTHERS THEN
      ROLLBACK;
      RAISE;
  END flush;

  PROCEDURE stored_rows(
    p_partition         IN  NUMBER,
    p_key               IN  t_key,
    p_row_generation    OUT t_num,
    p_row_state         OUT t_num,
    p_row_life          OUT t_num,
    p_row_seq           OUT t_num,
    p_row_first_seq     OUT t_num,
    p_row_fragments     OUT t_num,
    p_row_holes         OUT t_num,
    p_row_late          OUT t_num,
    p_row_bytes         OUT t_num,
    p_row_units         OUT t_num,
    p_row_chunks        OUT t_num,
    p_row_crc           OUT t_num,
    p_row_reason_bytes  OUT t_num,
    p_texts             OUT VARCHAR2) IS
    l_row   t_row;
    l_bytes NUMBER;
  BEGIN
    FOR i IN 1 .. p_key.COUNT LOOP
      l_row := read_row(p_partition, p_key(i), 0);
      l_bytes := pack(p_texts, l_row.reason);
      EXIT WHEN l_bytes < 0;
      p_row_generation(i) := l_row.generation;
      p_row_state(i) := l_row.state;
      p_row_life(i) := l_row.life;
      p_row_seq(i) := l_row.last_seq;
      p_row_first_seq(i) := l_row.first_seq;
      p_row_fragments(i) := l_row.fragments;
      p_row_holes(i) := l_row.holes;
      p_row_late(i) := l_row.late;
      p_row_bytes(i) := l_row.bytes;
      p_row_units(i) := l_row.units;
      p_row_chunks(i) := l_row.chunks;
      p_row_crc(i) := l_row.crc;
      p_row_reason_bytes(i) := l_bytes;
    END LOOP;
  END stored_rows;

  PROCEDURE documents(
    p_from              IN  VARCHAR2,
    p_to                IN  VARCHAR2,
    p_after             IN  VARCHAR2,
    p_state             IN  NUMBER,
    p_limit             IN  NUMBER,
    p_row_partition     OUT t_num,
    p_row_generation    OUT t_num,
    p_row_state         OUT t_num,
    p_row_life          OUT t_num,
    p_row_seq           OUT t_num,
    p_row_first_seq     OUT t_num,
    p_row_fragments     OUT t_num,
    p_row_holes         OUT t_num,
    p_row_late          OUT t_num,
    p_row_bytes         OUT t_num,
    p_row_units         OUT t_num,
    p_row_chunks        OUT t_num,
    p_row_crc           OUT t_num,
    p_row_created_at    OUT t_num,
    p_row_updated_at    OUT t_num,
    p_row_key_bytes     OUT t_num,
    p_row_reason_bytes  OUT t_num,
    p_texts             OUT VARCHAR2,
    p_more              OUT NUMBER) IS
    -- No key is below the one, or above the other: 64 times the last character.
    l_from VARCHAR2(2000 BYTE) := NVL(GREATEST(NVL(p_from, p_after), NVL(p_after, p_from)), CHR(1));
    l_to   VARCHAR2(2000 BYTE) := NVL(p_to, UTL_RAW.CAST_TO_VARCHAR2(HEXTORAW(RPAD('F48FBFBF', 512, 'F48FBFBF'))));
    i      PLS_INTEGER := 0;
  BEGIN
    p_more := 0;
    FOR d IN (SELECT doc_key, partition_no, generation, state, life, last_seq, first_seq, fragments, holes, late,
                     bytes, units, chunks, crc, reason, created_at, updated_at
                FROM lobsink_documents
               WHERE slot = 0 AND doc_key >= l_from AND doc_key <= l_to
                 AND (p_after IS NULL OR doc_key <> p_after)
                 AND (p_state = 0 OR state = p_state)
               ORDER BY doc_key
               FETCH FIRST p_limit ROWS ONLY) LOOP
      IF NVL(LENGTHB(p_texts), 0) + LENGTHB(d.doc_key) + NVL(LENGTHB(d.reason), 0) > 32767 THEN
        p_more := 1;
        EXIT;
      END IF;
      i := i + 1;
      p_row_partition(i) := d.partition_no;
      p_row_generation(i) := d.generation;
      p_row_state(i) := d.state;
      p_row_life(i) := d.life;
      p_row_seq(i) := d.last_seq;
      p_row_first_seq(i) := d.first_seq;
      p_row_fragments(i) := d.fragments;
      p_row_holes(i) := d.holes;
      p_row_late(i) := d.late;
      p_row_bytes(i) := d.bytes;
      p_row_units(i) := d.units;
      p_row_chunks(i) := d.chunks;
      p_row_crc(i) := d.crc;
      p_row_created_at(i) := d.created_at;
      p_row_updated_at(i) := d.updated_at;
      p_row_key_bytes(i) := pack(p_texts, d.doc_key);
      p_row_reason_bytes(i) := pack(p_texts, d.reason);
    END LOOP;
  END documents;

  PROCEDURE read_body(
    p_key               IN  VARCHAR2,
    p_generation        IN  NUMBER,
    p_from              IN  NUMBER,
    p_to                IN  NUMBER,
    p_data              OUT t_raw,
    p_next              OUT NUMBER) IS
    l_rid       ROWID;
    l_partition NUMBER;
    l_units     NUMBER;
    l_body      CLOB;
    l_text      VARCHAR2(32767 BYTE);
    l_amount    INTEGER;
    i           PLS_INTEGER := 0;

    -- Reads up to 8,000 units: 24,000 bytes at most. A piece must not end inside a
    -- surrogate pair. Where it would, it is one unit shorter; Oracle either refuses
    -- half a pair (ORA-22831) or gives U+FFFD for it.
    PROCEDURE read_piece IS
    BEGIN
      FOR shorter IN 0 .. 1 LOOP
        l_amount := LEAST(8000, l_units - p_next + 1) - shorter;
        BEGIN
          DBMS_LOB.READ(l_body, l_amount, p_next, l_text);
          EXIT WHEN p_next + l_amount > l_units OR SUBSTR(l_text, -1) <> UTL_RAW.CAST_TO_VARCHAR2(HEXTORAW('EFBFBD'));
        EXCEPTION
          WHEN OTHERS THEN
            IF SQLCODE <> -22831 OR shorter = 1 THEN
              RAISE;
            END IF;
        END;
      END LOOP;
    END read_piece;
  BEGIN
    p_next := p_from;
    BEGIN
      SELECT ROWID, partition_no, LEAST(units, p_to) INTO l_rid, l_partition, l_units
        FROM lobsink_documents
       WHERE doc_key = p_key AND slot = 0 AND generation = p_generation;
    EXCEPTION
      WHEN NO_DATA_FOUND THEN
        RETURN;
    END;
    IF p_from > l_units THEN
      RETURN;
    END IF;
    find_body(l_rid, l_partition, p_key, p_generation, l_body);
    IF l_body IS NULL THEN
      RETURN;
    END IF;
    l_units := LEAST(l_units, DBMS_LOB.GETLENGTH(l_body));  -- shorter: somebody else wrote
    WHILE i < 64 AND p_next <= l_units LOOP
      read_piece;
      i := i + 1;
      p_data(i) := UTL_RAW.CAST_TO_RAW(l_text);
      p_next := p_next + l_amount;
    END LOOP;
  END read_body;

  PROCEDURE quarantine(
    p_key               IN  VARCHAR2,
    p_reason            IN  VARCHAR2,
    p_outcome           OUT NUMBER) IS
    l_partition NUMBER;
    l_state     NUMBER;
    l_fence     t_fence;
    l_now       NUMBER;
  BEGIN
    ROLLBACK;
    p_outcome := 3;
    SELECT partition_no INTO l_partition FROM lobsink_documents WHERE doc_key = p_key AND slot = 0;
    l_fence := lock_fence(l_partition);
    SELECT state INTO l_state FROM lobsink_documents WHERE doc_key = p_key AND slot = 0;
    IF l_state = 4 THEN
      ROLLBACK;
      p_outcome := 2;
      RETURN;
    END IF;
    l_now := now_ns;
    UPDATE lobsink_documents SET state = 4, reason = p_reason, updated_at = l_now WHERE doc_key = p_key AND slot = 0;
    p_outcome := 1;
  EXCEPTION
    WHEN NO_DATA_FOUND THEN
      ROLLBACK;
    WHEN OTHERS THEN
      ROLLBACK;
      RAISE;
  END quarantine;

  PROCEDURE begin_build(
    p_partition         IN  NUMBER,
    p_key               IN  VARCHAR2,
    p_generation        IN  NUMBER) IS
    l_row t_row := no_row;
    l_rid ROWID;
  BEGIN
    ROLLBACK;
    IF NVL(p_generation, 0) < 1 THEN
      RAISE_APPLICATION_ERROR(-20810, 'a generation is 1 or more');
    END IF;
    l_row.generation := p_generation;
    l_row.state := 1;
    insert_row(p_partition, p_key, p_generation, l_row, l_rid);
  EXCEPTION
    WHEN OTHERS THEN
      ROLLBACK;
      RAISE;
  END begin_build;

  -- The row of a build.
  FUNCTION built_row(p_partition IN NUMBER, p_key IN VARCHAR2, p_generation IN NUMBER) RETURN t_row IS
    l_row t_row := read_row(p_partition, p_key, p_generation);
  BEGIN
    IF l_row.rid IS NULL THEN
      RAISE_APPLICATION_ERROR(-20810, 'this session is not building that generation');
    END IF;
    RETURN l_row;
  END built_row;

  PROCEDURE append_build(
    p_partition         IN  NUMBER,
    p_key               IN  VARCHAR2,
    p_generation        IN  NUMBER,
    p_data              IN  t_raw) IS
    l_row  t_row := built_row(p_partition, p_key, p_generation);
    l_body CLOB;
  BEGIN
    IF p_data.COUNT = 0 THEN
      RETURN;
    END IF;
    open_body(l_row.rid, p_partition, p_key, p_generation, p_generation, l_body);
    append_pieces(l_body, p_data, 1, p_data.COUNT, l_row.bytes, l_row.units);
    update_row(l_row.rid, l_row);
  END append_build;

  PROCEDURE write_repairs(p_key IN VARCHAR2, p_life IN t_num, p_seq IN t_num, p_omit IN t_num, p_pieces IN t_num, p_data IN t_raw) IS
    l_body BLOB;
    l_next PLS_INTEGER := 1;
  BEGIN
    DELETE FROM lobsink_repairs WHERE doc_key = p_key;
    FOR i IN 1 .. p_life.COUNT LOOP
      IF p_omit(i) = 1 THEN
        INSERT INTO lobsink_repairs (doc_key, life, seq_no, omit) VALUES (p_key, p_life(i), p_seq(i), 1);
      ELSE
        INSERT INTO lobsink_repairs (doc_key, life, seq_no, omit, body) VALUES (p_key, p_life(i), p_seq(i), 0, EMPTY_BLOB())
        RETURNING body INTO l_body;
        FOR k IN l_next .. l_next + p_pieces(i) - 1 LOOP
          DBMS_LOB.WRITEAPPEND(l_body, UTL_RAW.LENGTH(p_data(k)), p_data(k));
        END LOOP;
        l_next := l_next + p_pieces(i);
      END IF;
    END LOOP;
    IF l_next <> p_data.COUNT + 1 THEN
      RAISE_APPLICATION_ERROR(-20810, 'the repairs have ' || (l_next - 1) || ' pieces, the call has ' || p_data.COUNT);
    END IF;
  END write_repairs;

  PROCEDURE swap_build(
    p_partition         IN  NUMBER,
    p_key               IN  VARCHAR2,
    p_generation        IN  NUMBER,
    p_state             IN  NUMBER,
    p_life              IN  NUMBER,
    p_seq               IN  NUMBER,
    p_first_seq         IN  NUMBER,
    p_fragments         IN  NUMBER,
    p_holes             IN  NUMBER,
    p_late              IN  NUMBER,
    p_bytes             IN  NUMBER,
    p_units             IN  NUMBER,
    p_chunks            IN  NUMBER,
    p_crc               IN  NUMBER,
    p_reason            IN  VARCHAR2,
    p_repair_life       IN  t_num,
    p_repair_seq        IN  t_num,
    p_repair_omit       IN  t_num,
    p_repair_pieces     IN  t_num,
    p_repair_data       IN  t_raw,
    p_outcome           OUT NUMBER,
    p_row_generation    OUT NUMBER,
    p_row_state         OUT NUMBER,
    p_row_life          OUT NUMBER,
    p_row_seq           OUT NUMBER,
    p_row_first_seq     OUT NUMBER,
    p_row_fragments     OUT NUMBER,
    p_row_holes         OUT NUMBER,
    p_row_late          OUT NUMBER,
    p_row_bytes         OUT NUMBER,
    p_row_units         OUT NUMBER,
    p_row_chunks        OUT NUMBER,
    p_row_crc           OUT NUMBER,
    p_row_reason        OUT VARCHAR2) IS
    l_built   t_row := built_row(p_partition, p_key, p_generation);
    l_stored  t_row;
    l_new     t_row;
    l_fence   t_fence;
    l_created NUMBER;

    -- lobwriter.MaySwap.
    FUNCTION may_swap RETURN BOOLEAN IS
    BEGIN
      IF l_stored.generation + 1 <> p_generation THEN
        RETURN FALSE;
      ELSIF l_stored.rid IS NULL THEN
        RETURN p_life = l_fence.life AND p_seq <= l_fence.checkpoint;
      END IF;
      RETURN l_stored.life = p_life AND l_stored.last_seq = p_seq;
    END may_swap;

    PROCEDURE answer(p_answer IN NUMBER) IS
    BEGIN
      p_outcome := p_answer;
      p_row_generation := l_stored.generation;
      p_row_state := l_stored.state;
      p_row_life := l_stored.life;
      p_row_seq := l_stored.last_seq;
      p_row_first_seq := l_stored.first_seq;
      p_row_fragments := l_stored.fragments;
      p_row_holes := l_stored.holes;
      p_row_late := l_stored.late;
      p_row_bytes := l_stored.bytes;
      p_row_units := l_stored.units;
      p_row_chunks := l_stored.chunks;
      p_row_crc := l_stored.crc;
      p_row_reason := l_stored.reason;
    END answer;
  BEGIN
    -- First without the lock: whoever waits for it would wait for the end of the
    -- build, also after a rollback to a savepoint.
    l_fence := read_fence(p_partition);
    l_stored := read_row(p_partition, p_key, 0);
    IF may_swap THEN
      NULL;
    ELSE
      answer(2);
      RETURN;
    END IF;

    SAVEPOINT lobsink_swap;
    l_fence := lock_fence(p_partition);
    l_stored := read_row(p_partition, p_key, 0);
    IF may_swap THEN
      NULL;
    ELSE
      ROLLBACK TO SAVEPOINT lobsink_swap;
      answer(2);
      RETURN;
    END IF;
    answer(1);

    l_created := now_ns;
    IF l_stored.rid IS NOT NULL THEN
      DELETE FROM lobsink_documents WHERE ROWID = l_stored.rid RETURNING created_at INTO l_created;
    END IF;
    UPDATE lobsink_documents SET slot = 0, created_at = l_created WHERE ROWID = l_built.rid;
    take_body(l_built.rid, p_partition, p_key, l_stored.generation, l_stored.units, p_generation);
    l_new.generation := p_generation;
    l_new.state := p_state;
    l_new.life := p_life;
    l_new.last_seq := p_seq;
    l_new.first_seq := p_first_seq;
    l_new.fragments := p_fragments;
    l_new.holes := p_holes;
    l_new.late := p_late;
    l_new.bytes := p_bytes;
    l_new.units := p_units;
    l_new.chunks := p_chunks;
    l_new.crc := p_crc;
    l_new.reason := p_reason;
    check_counts(l_new, l_built.bytes, l_built.units);
    update_row(l_built.rid, l_new);
    write_repairs(p_key, p_repair_life, p_repair_seq, p_repair_omit, p_repair_pieces, p_repair_data);
  END swap_build;

  PROCEDURE repairs(
    p_key               IN  VARCHAR2,
    p_after_life        IN  NUMBER,
    p_after_seq         IN  NUMBER,
    p_life              OUT t_num,
    p_seq               OUT t_num,
    p_omit              OUT t_num,
    p_bytes             OUT t_num,
    p_more              OUT NUMBER) IS
    i PLS_INTEGER := 0;
  BEGIN
    p_more := 0;
    FOR r IN (SELECT life, seq_no, omit, NVL(DBMS_LOB.GETLENGTH(body), 0) AS bytes
                FROM lobsink_repairs
               WHERE doc_key = p_key AND (life > p_after_life OR (life = p_after_life AND seq_no > p_after_seq))
               ORDER BY life, seq_no) LOOP
      IF i = 1000 THEN
        p_more := 1;
        EXIT;
      END IF;
      i := i + 1;
      p_life(i) := r.life;
      p_seq(i) := r.seq_no;
      p_omit(i) := r.omit;
      p_bytes(i) := r.bytes;
    END LOOP;
  END repairs;

  PROCEDURE read_repair(
    p_key               IN  VARCHAR2,
    p_life              IN  NUMBER,
    p_seq               IN  NUMBER,
    p_from              IN  NUMBER,
    p_data              OUT t_raw,
    p_next              OUT NUMBER) IS
    l_body   BLOB;
    l_bytes  NUMBER;
    l_amount INTEGER;
    l_piece  RAW(32767);
    i        PLS_INTEGER := 0;
  BEGIN
    p_next := p_from;
    SELECT body INTO l_body FROM lobsink_repairs WHERE doc_key = p_key AND life = p_life AND seq_no = p_seq;
    l_bytes := NVL(DBMS_LOB.GETLENGTH(l_body), 0);
    WHILE i < 64 AND p_next <= l_bytes LOOP
      l_amount := LEAST(32767, l_bytes - p_next + 1);
      DBMS_LOB.READ(l_body, l_amount, p_next, l_piece);
      i := i + 1;
      p_data(i) := l_piece;
      p_next := p_next + l_amount;
    END LOOP;
  EXCEPTION
    WHEN NO_DATA_FOUND THEN
      RETURN;
  END read_repair;

  PROCEDURE purge(
    p_partition         IN  NUMBER,
    p_key               IN  t_key,
    p_state             IN  NUMBER,
    p_older             IN  NUMBER,
    p_dry_run           IN  NUMBER,
    p_documents         OUT NUMBER,
    p_bytes             OUT NUMBER,
    p_above             OUT NUMBER) IS
    l_now        NUMBER := now_ns;
    l_updated_at NUMBER;
    l_fence      t_fence;
    l_row        t_row;
  BEGIN
    ROLLBACK;
    p_documents := 0;
    p_bytes := 0;
    p_above := 0;
    l_fence := lock_fence(p_partition);
    FOR i IN 1 .. p_key.COUNT LOOP
      l_row := read_row(p_partition, p_key(i), 0);
      CONTINUE WHEN l_row.rid IS NULL OR l_row.state <> p_state;
      SELECT updated_at INTO l_updated_at FROM lobsink_documents WHERE ROWID = l_row.rid;
      CONTINUE WHEN l_updated_at > l_now - p_older;
      IF l_row.life < l_fence.life OR (l_row.life = l_fence.life AND l_row.last_seq <= l_fence.checkpoint) THEN
        p_documents := p_documents + 1;
        p_bytes := p_bytes + l_row.bytes;
        IF p_dry_run = 0 THEN
          drop_body(p_partition, p_key(i), l_row.generation);
          DELETE FROM lobsink_repairs WHERE doc_key = p_key(i);
          DELETE FROM lobsink_documents WHERE ROWID = l_row.rid;
        END IF;
      ELSE
        p_above := p_above + 1;
      END IF;
    END LOOP;
  EXCEPTION
    WHEN OTHERS THEN
      ROLLBACK;
      RAISE;
  END purge;

END lobsink_v1;
/

-- A package with errors is created all the same, with no more than a warning.
DECLARE
  l_errors VARCHAR2(2000 BYTE);
BEGIN
  FOR e IN (SELECT type, line, position, text
              FROM all_errors
             WHERE owner = SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA') AND name = 'LOBSINK_V1' AND attribute = 'ERROR'
             ORDER BY type, sequence) LOOP
    l_errors := SUBSTRB(l_errors || CHR(10) || e.type || ' line ' || e.line || ' column ' || e.position || ': ' || e.text, 1, 1900);
  END LOOP;
  IF l_errors IS NOT NULL THEN
    RAISE_APPLICATION_ERROR(-20800, 'package lobsink_v1 does not compile:' || l_errors);
  END IF;
END;
/

INSERT INTO lobsink_schema (version, applied_at)
SELECT 3, (CAST(SYS_EXTRACT_UTC(SYSTIMESTAMP) AS DATE) - DATE '1970-01-01') * 86400000000000
  FROM dual
 WHERE NOT EXISTS (SELECT 1 FROM lobsink_schema WHERE version = 3)
/

COMMIT
/
