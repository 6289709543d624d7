-- The calls of lobsink: what lobwriter.Store and lobwriter.Reader need, one call
-- each. Not run on Oracle.
--
-- Run by SQL*Plus or SQLcl in the owner's schema, or by `lobsink schema apply`.
--
-- A change of what a call takes or returns makes a new package (lobsink_v2), so
-- that programs of both versions work while they are exchanged. Replacing a
-- package that is in use would wait for the calls that run, and break others.
--
-- It has types only: a session keeps no state of it that a new compilation would
-- discard (ORA-04068). It takes and returns numbers, text and RAW only: no locator,
-- no cursor, no temporary LOB ever reaches the client.
--
-- Every call is one transaction, which the client has the driver commit together
-- with the call; but for those of a build. It begins with ROLLBACK: what an earlier failed call has left
-- open on the session must not be committed by this one. It ends with ROLLBACK
-- and RAISE on an error, so that nobody waits for its locks. Calls that only read do
-- neither.
--
-- Numbers are whole numbers. Times are Unix nanoseconds of the database's clock,
-- lengths of time nanoseconds. Sequences are those of the stream. No number that
-- is returned is ever NULL. Text that is empty is NULL, as always in Oracle: the
-- driver gives "". Tables (t_*) are dense, from 1; of those that belong together
-- all have the same count. The client binds t_num as 64-bit integers only.
--
-- Packed text: texts cannot be returned in tables, as the driver provides 32,767
-- bytes for each element. They come one after the other in one VARCHAR2 of at most
-- 32,767 bytes (p_texts), and tables (p_..._bytes) tell how many bytes belong to
-- each.
--
-- A fence row is returned as life, epoch, claim ID, flush, checkpoint,
-- checkpoint_time, highest, highest_time.
--
-- Errors of its own, beside those of Oracle:
--   -20810  a bug: an answer was not decided, or the call does not fit together
--   -20813  the LOB's length is not what lobsink wrote: somebody else did
--   -20814  the LOB or the counts grew by something else than the pieces
--   -20815  the client found the text not to be UTF-8, or U+0000 in it
--   -20816  (attached table) there is no row with this key
--   -20817  (attached table) the key cannot be one of that table
--   -20818  (attached table) documents are not deleted: that table is not lobsink's

SET DEFINE OFF
SET SQLBLANKLINES ON
WHENEVER SQLERROR EXIT FAILURE ROLLBACK

CREATE OR REPLACE PACKAGE lobsink_v1 AUTHID DEFINER AS

  TYPE t_key  IS TABLE OF VARCHAR2(255 BYTE)  INDEX BY PLS_INTEGER;
  TYPE t_text IS TABLE OF VARCHAR2(2000 BYTE) INDEX BY PLS_INTEGER;
  TYPE t_num  IS TABLE OF NUMBER              INDEX BY PLS_INTEGER;
  TYPE t_raw  IS TABLE OF RAW(32767)          INDEX BY PLS_INTEGER;

  -- What the client checks when it connects. p_schema_version: the newest
  -- migration that was applied.
  PROCEDURE environment(
    p_schema_version    OUT NUMBER,
    p_role              OUT VARCHAR2,  -- PRIMARY
    p_character_set     OUT VARCHAR2,  -- AL32UTF8
    p_database          OUT VARCHAR2,  -- unique name
    p_container         OUT VARCHAR2,
    p_instance          OUT VARCHAR2,
    p_service           OUT VARCHAR2);

  -- Store.Bind. The first call stores the stream and makes the fence rows and
  -- lease rows of its partitions. Every call returns what is stored; the client
  -- compares.
  PROCEDURE bind(
    p_stream            IN  VARCHAR2,
    p_created           IN  NUMBER,
    p_partitions        IN  NUMBER,
    p_database_id       OUT VARCHAR2,  -- 8 hex digits
    p_life              OUT NUMBER,
    p_stored_stream     OUT VARCHAR2,
    p_stored_created    OUT NUMBER,
    p_stored_partitions OUT NUMBER);

  -- Reader.Binding. p_life 0: not bound yet. Only reads.
  PROCEDURE binding(
    p_database_id       OUT VARCHAR2,
    p_life              OUT NUMBER,
    p_stored_stream     OUT VARCHAR2,
    p_stored_created    OUT NUMBER,
    p_stored_partitions OUT NUMBER);

  -- Store.Attend: writes the member row, or removes it with p_lease 0; removes those
  -- of members that are live no longer; returns the roster. Members are in order of
  -- ID, p_left is for how long each is live. p_texts: ID, name, version of each.
  -- p_more 1: not all had room, ask roster for those after the last ID. The leases
  -- are those of the partitions that somebody has claimed and not freed, in order of
  -- the partition; p_lease_left is the time to the end, 0 and below: since it.
  -- p_lease_texts: the member's ID of each.
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
    p_lease_texts       OUT VARCHAR2);

  -- Reader.Roster, from the member after an ID on; NULL: from the first. Only reads.
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
    p_lease_texts       OUT VARCHAR2);

  -- Store.Leave: removes the member row and frees the leases of the member.
  PROCEDURE leave(
    p_id                IN  VARCHAR2);

  -- Store.Claim. It waits up to 5 seconds for the fence row of a flush under way,
  -- then ORA-30006. It never waits for the lease row.
  -- p_outcome: 1 claimed, the fence row is as the claim left it; 2 held, p_holder
  -- is the member, p_held_for how much longer; 3 there is no such partition;
  -- 4 busy, another call holds the lease row: nothing was done, try again. The
  -- fence row is returned whatever the outcome; all 0 with 3.
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
    p_stored_highest_time OUT NUMBER);

  -- Store.Renew. It takes the lock of the lease row only, and never waits for it.
  -- p_outcome: 1 renewed; 2 the lease row is no longer of this claim (fenced);
  -- 4 busy, nothing was done, try again. The fence row is returned always.
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
    p_stored_highest_time OUT NUMBER);

  -- Store.Release. p_outcome: 1 released; 2 the lease row was not of this claim;
  -- 4 busy, nothing was done, try again.
  PROCEDURE release_claim(
    p_partition         IN  NUMBER,
    p_member_id         IN  VARCHAR2,
    p_epoch             IN  NUMBER,
    p_claim_id          IN  VARCHAR2,
    p_outcome           OUT NUMBER);

  -- Store.Fence and Reader.Fence, without a lock. A partition that is not there
  -- gives zeros and the life of the binding. Only reads.
  PROCEDURE fence(
    p_partition         IN  NUMBER,
    p_stored_life       OUT NUMBER,
    p_stored_epoch      OUT NUMBER,
    p_stored_claim_id   OUT VARCHAR2,
    p_stored_flush      OUT NUMBER,
    p_stored_checkpoint OUT NUMBER,
    p_stored_checkpoint_time OUT NUMBER,
    p_stored_highest    OUT NUMBER,
    p_stored_highest_time OUT NUMBER);

  -- Store.Flush: the whole flush, text and all.
  --
  -- p_isolate 1: whatever goes wrong with one document, apart from what is known
  -- to be the fault of the database, refuses that document instead of failing the
  -- call. For the caller's last resort, after several equal failures.
  --
  -- The tables from p_key to p_pieces have one element for each group, with keys
  -- that differ. p_was_* is the believed row, all 0: none. p_generation to
  -- p_reason are the row after the group, whose mark is (p_life, p_last); p_bytes,
  -- p_units (UTF-16 code units) and p_chunks are those of the whole document. p_data
  -- has the pieces of all groups in their order, p_pieces of them for each group:
  -- 0 is legal, -1 says that the client refuses the text (it is no UTF-8, or has
  -- U+0000): such a group is rejected with -20815 where it would be appended.
  -- p_reason has at most 2,000 bytes: the client cuts longer ones.
  --
  -- p_outcome: 1 accepted; 2 fenced: nothing was written, all tables are empty.
  -- The fence row is returned with both, as it stands after the call.
  --
  -- p_status is one of lobwriter.Status: 1 already there, 2 stale, 3 closed,
  -- 4 appended, 5 rejected. p_code: 0, or with 5 the error, negative as in SQLCODE.
  -- p_row_*: for every status but 4 the stored row, all 0: there is none (or it
  -- cannot be read); with 4 all 0. p_texts: for each group its stored reason and
  -- the text of its error. p_row_reason_bytes -1: no room, ask stored_rows.
  -- p_lob_writes: how many pieces were written to LOBs.
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
    p_texts             OUT VARCHAR2);

  -- Store.Rows: the stored rows of keys, in their order; all 0: there is none.
  -- p_texts: their reasons. The tables have an element for each key from the first
  -- on whose reason had room: where there are fewer than keys, ask again for the
  -- rest. With keys there is at least one. Only reads.
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
    p_texts             OUT VARCHAR2);

  -- Reader.Documents, and Reader.Document with p_from = p_to = the key. At most
  -- p_limit (1 to 1,000) documents whose key is at least p_from and at most p_to,
  -- and not p_after, in byte order of the key. NULL: no such bound. p_state 0: all.
  -- p_texts: key and reason of each. There may be fewer than p_limit because of
  -- the room for texts: p_more 1 says so, ask again after the last key. Only reads.
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
    p_more              OUT NUMBER);

  -- Reader.Read: text of a generation of a document from unit p_from (the first
  -- is 1) to unit p_to at most: up to 64 pieces in UTF-8, none ends inside a
  -- character. p_next is the unit to go on with: p_to + 1 when all was read. No
  -- table and p_next = p_from: that generation is gone. The client takes bytes,
  -- units and CRC from documents first and reads to there: text is only ever
  -- appended to a generation, so that is the text of that moment. Only reads.
  PROCEDURE read_body(
    p_key               IN  VARCHAR2,
    p_generation        IN  NUMBER,
    p_from              IN  NUMBER,
    p_to                IN  NUMBER,
    p_data              OUT t_raw,
    p_next              OUT NUMBER);

  -- For operators: closes a document under the lock of its partition's fence row.
  -- Its owner finds the row changed and takes it. p_outcome: 1 quarantined;
  -- 2 it was already; 3 there is no such document.
  PROCEDURE quarantine(
    p_key               IN  VARCHAR2,
    p_reason            IN  VARCHAR2,
    p_outcome           OUT NUMBER);

  -- Rebuilder.Build: begins a new generation of a document in a transaction that the
  -- client keeps open, on this session, over build_append and swap_build. It commits
  -- when swap_build has answered 1, and rolls back in every other end: nothing is left
  -- behind, and nobody sees anything before. Another build of the same generation
  -- waits here for the end of this one.
  PROCEDURE begin_build(
    p_partition         IN  NUMBER,
    p_key               IN  VARCHAR2,
    p_generation        IN  NUMBER);

  -- Build.Append: appends pieces to the generation. After an error of a build's call
  -- the transaction has to be rolled back.
  PROCEDURE append_build(
    p_partition         IN  NUMBER,
    p_key               IN  VARCHAR2,
    p_generation        IN  NUMBER,
    p_data              IN  t_raw);

  -- Build.Swap: puts the generation in the place of the stored one, under the lock of
  -- the fence row, if lobwriter.MaySwap says so. p_generation to p_reason are the new
  -- row. The p_repair_* tables have an element for each repair: p_repair_omit 1 leaves
  -- the fragment out, p_repair_pieces of p_repair_data are its text otherwise.
  -- p_outcome: 1 swapped, to be committed; 2 not, nothing was changed and the build may
  -- go on. p_row_* is the stored row as it was before; all 0: there was none.
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
    p_row_reason        OUT VARCHAR2);

  -- RepairReader.Repairs: the repairs of a document after a mark, in the order of
  -- their marks; p_after_life 0: from the first. At most 1,000: p_more 1 says that
  -- there are more. p_bytes: the length of the text. Only reads.
  PROCEDURE repairs(
    p_key               IN  VARCHAR2,
    p_after_life        IN  NUMBER,
    p_after_seq         IN  NUMBER,
    p_life              OUT t_num,
    p_seq               OUT t_num,
    p_omit              OUT t_num,
    p_bytes             OUT t_num,
    p_more              OUT NUMBER);

  -- The text of a repair from byte p_from on (the first is 1): up to 64 pieces, cut
  -- anywhere. p_next is the byte to go on with: above the length when all was read.
  -- No table: there is no such repair, or no text in it. Only reads.
  PROCEDURE read_repair(
    p_key               IN  VARCHAR2,
    p_life              IN  NUMBER,
    p_seq               IN  NUMBER,
    p_from              IN  NUMBER,
    p_data              OUT t_raw,
    p_next              OUT NUMBER);

  -- Purger.Purge: deletes those of the keys whose document is in state p_state, was
  -- not changed for p_older and has its mark at or below the checkpoint, under the
  -- lock of the fence row. p_dry_run 1 only counts. p_bytes is what was deleted,
  -- p_above counts those that were not only because their mark is above the
  -- checkpoint.
  PROCEDURE purge(
    p_partition         IN  NUMBER,
    p_key               IN  t_key,
    p_state             IN  NUMBER,
    p_older             IN  NUMBER,
    p_dry_run           IN  NUMBER,
    p_documents         OUT NUMBER,
    p_bytes             OUT NUMBER,
    p_above             OUT NUMBER);

END lobsink_v1;
/

INSERT INTO lobsink_schema (version, applied_at)
SELECT 2, (CAST(SYS_EXTRACT_UTC(SYSTIMESTAMP) AS DATE) - DATE '1970-01-01') * 86400000000000
  FROM dual
 WHERE NOT EXISTS (SELECT 1 FROM lobsink_schema WHERE version = 2)
/

COMMIT
/
