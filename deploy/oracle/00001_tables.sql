-- The tables of lobsink in Oracle 19c or newer, in a database in AL32UTF8. Not run
-- on Oracle.
--
-- Run by SQL*Plus or SQLcl in the owner's schema, or by `lobsink schema apply`. It
-- may be repeated: what is there stays as it is. That is also how a script of
-- options/ chooses another storage: it makes a table before this one would.
--
-- No option or pack of Oracle is used. The tablespace is the schema's default; it
-- needs automatic segment space management, as SecureFiles do.
--
-- Times are Unix nanoseconds. Sequences are those of the stream.

SET DEFINE OFF
SET SQLBLANKLINES ON
WHENEVER SQLERROR EXIT FAILURE ROLLBACK

DECLARE
  -- CREATE TABLE IF NOT EXISTS came with 23ai.
  PROCEDURE make(p_statement IN VARCHAR2) IS
  BEGIN
    EXECUTE IMMEDIATE p_statement;
  EXCEPTION
    WHEN OTHERS THEN
      IF SQLCODE <> -955 THEN  -- name is already used
        RAISE;
      END IF;
  END make;
BEGIN
  -- Which of these files were applied.
  make(q'[
CREATE TABLE lobsink_schema (
  version     NUMBER(9)   NOT NULL,
  applied_at  NUMBER(19)  NOT NULL,
  CONSTRAINT lobsink_schema_pk PRIMARY KEY (version)
)]');

  -- Where the text of documents is: in column body below (documents, also without a
  -- row here), in tables of their own (tables), or in a column of another table
  -- (attached). The package body is made for it.
  make(q'[
CREATE TABLE lobsink_layout (
  id             NUMBER(1)            NOT NULL,
  kind           VARCHAR2(20 BYTE)    NOT NULL,
  body_tables    NUMBER(4),
  table_owner    VARCHAR2(128 BYTE),
  table_name     VARCHAR2(128 BYTE),
  key_column     VARCHAR2(128 BYTE),
  key_type       VARCHAR2(20 BYTE),
  body_column    VARCHAR2(128 BYTE),
  touch_column   VARCHAR2(128 BYTE),
  insert_values  VARCHAR2(2000 BYTE),
  CONSTRAINT lobsink_layout_pk PRIMARY KEY (id),
  CONSTRAINT lobsink_layout_one CHECK (id = 1)
)]');

  -- Which stream the tables serve. There is one row; its stream is NULL until
  -- lobsink runs for the first time.
  make(q'[
CREATE TABLE lobsink_binding (
  id           NUMBER(1)           NOT NULL,
  database_id  VARCHAR2(8 BYTE)    NOT NULL,
  life         NUMBER(19)          NOT NULL,
  stream       VARCHAR2(255 BYTE),
  created      NUMBER(19),
  partitions   NUMBER(9),
  CONSTRAINT lobsink_binding_pk PRIMARY KEY (id),
  CONSTRAINT lobsink_binding_one CHECK (id = 1)
)]');

  -- The fence row of each partition. Its lock is the lock of all documents of the
  -- partition. One row in a block: instances of a cluster do not share blocks then.
  make(q'[
CREATE TABLE lobsink_fences (
  partition_no     NUMBER(9)          NOT NULL,
  life             NUMBER(19)         NOT NULL,
  epoch            NUMBER(19)         NOT NULL,
  claim_id         VARCHAR2(64 BYTE),
  flush            NUMBER(19)         NOT NULL,
  checkpoint       NUMBER(19)         NOT NULL,
  checkpoint_time  NUMBER(19)         NOT NULL,
  highest          NUMBER(19)         NOT NULL,
  highest_time     NUMBER(19)         NOT NULL,
  CONSTRAINT lobsink_fences_pk PRIMARY KEY (partition_no)
) PCTFREE 99 INITRANS 4]');

  -- Until when nobody else may claim a partition, and by which claim. Apart from
  -- the fence row, so that a renewal does not wait for a flush.
  make(q'[
CREATE TABLE lobsink_leases (
  partition_no  NUMBER(9)          NOT NULL,
  member_id     VARCHAR2(64 BYTE),
  epoch         NUMBER(19)         NOT NULL,
  claim_id      VARCHAR2(64 BYTE),
  lease_until   NUMBER(19)         NOT NULL,
  CONSTRAINT lobsink_leases_pk PRIMARY KEY (partition_no)
) PCTFREE 99 INITRANS 4]');

  -- The running lobsinks.
  make(q'[
CREATE TABLE lobsink_members (
  id          VARCHAR2(64 BYTE)   NOT NULL,
  name        VARCHAR2(255 BYTE),
  version     VARCHAR2(255 BYTE),
  seen_until  NUMBER(19)          NOT NULL,
  CONSTRAINT lobsink_members_pk PRIMARY KEY (id)
) PCTFREE 50 INITRANS 4]');

  -- One row for each document. Slot 0 is what readers see; another slot is the number
  -- of a generation that is being built.
  -- state: 1 open, 2 complete, 3 incomplete, 4 quarantined. life and last_seq are the
  -- last message that is stored; units is the length in UTF-16 code units, as LOBs
  -- count; crc is the CRC-32C of the text in UTF-8.
  --
  -- Out of row: documents grow, and a LOB in the row is written again with each
  -- append. Cached: without it each write waits for the disk.
  make(q'[
CREATE TABLE lobsink_documents (
  doc_key       VARCHAR2(255 BYTE)   NOT NULL,
  slot          NUMBER(9)            NOT NULL,
  partition_no  NUMBER(9)            NOT NULL,
  generation    NUMBER(9)            NOT NULL,
  state         NUMBER(1)            NOT NULL,
  life          NUMBER(19)           NOT NULL,
  last_seq      NUMBER(19)           NOT NULL,
  first_seq     NUMBER(19)           NOT NULL,
  fragments     NUMBER(19)           NOT NULL,
  holes         NUMBER(19)           NOT NULL,
  late          NUMBER(19)           NOT NULL,
  bytes         NUMBER(19)           NOT NULL,
  units         NUMBER(19)           NOT NULL,
  chunks        NUMBER(19)           NOT NULL,
  crc           NUMBER(10)           NOT NULL,
  reason        VARCHAR2(2000 BYTE),
  created_at    NUMBER(19)           NOT NULL,
  updated_at    NUMBER(19)           NOT NULL,
  body          CLOB                 DEFAULT EMPTY_CLOB() NOT NULL,
  CONSTRAINT lobsink_documents_pk PRIMARY KEY (doc_key, slot)
) PCTFREE 10 INITRANS 4
LOB (body) STORE AS SECUREFILE lobsink_documents_body (
  DISABLE STORAGE IN ROW
  CACHE LOGGING
  RETENTION AUTO
  NOCOMPRESS
  KEEP_DUPLICATES
)]');

  -- What operators decided about single fragments: fragment (life, seq) is left out
  -- of the document, or body has taken its place, in this and in every later
  -- generation.
  make(q'[
CREATE TABLE lobsink_repairs (
  doc_key  VARCHAR2(255 BYTE)  NOT NULL,
  life     NUMBER(19)          NOT NULL,
  seq_no   NUMBER(19)          NOT NULL,
  omit     NUMBER(1)           NOT NULL,
  body     BLOB,
  CONSTRAINT lobsink_repairs_pk PRIMARY KEY (doc_key, life, seq_no)
)]');
END;
/

-- 8 random hex digits. SYS_GUID alone may be nearly the same twice.
INSERT INTO lobsink_binding (id, database_id, life)
SELECT 1, LOWER(SUBSTR(RAWTOHEX(STANDARD_HASH(RAWTOHEX(SYS_GUID()) || TO_CHAR(SYSTIMESTAMP, 'YYYYMMDDHH24MISSFF9'), 'SHA256')), 1, 8)), 0
  FROM dual
 WHERE NOT EXISTS (SELECT 1 FROM lobsink_binding)
/

-- Whole documents, for any client.
CREATE OR REPLACE VIEW lobsink_texts AS
SELECT doc_key,
       DECODE(state, 1, 'open', 2, 'complete', 3, 'incomplete', 4, 'quarantined') AS state,
       bytes,
       reason,
       TIMESTAMP '1970-01-01 00:00:00' + NUMTODSINTERVAL(created_at / 1000000000, 'SECOND') AS created_at,
       TIMESTAMP '1970-01-01 00:00:00' + NUMTODSINTERVAL(updated_at / 1000000000, 'SECOND') AS updated_at,
       body AS text
  FROM lobsink_documents
 WHERE slot = 0
/

INSERT INTO lobsink_schema (version, applied_at)
SELECT 1, (CAST(SYS_EXTRACT_UTC(SYSTIMESTAMP) AS DATE) - DATE '1970-01-01') * 86400000000000
  FROM dual
 WHERE NOT EXISTS (SELECT 1 FROM lobsink_schema WHERE version = 1)
/

COMMIT
/
