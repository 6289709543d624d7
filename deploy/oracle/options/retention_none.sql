-- Storage choice: space that an append has freed is used again at once. Each append
-- writes the last block of a document anew; by default the old one is kept as long as
-- the undo retention says, which may be hours. With NONE, whoever reads a document
-- while it grows may get ORA-01555 or ORA-22924, and has to read again.
--
-- Licence: none
-- Runs: last
-- Excludes: partitioning, body-tables, retention-min
--
-- Not run on Oracle.

SET DEFINE OFF
SET SQLBLANKLINES ON
WHENEVER SQLERROR EXIT FAILURE ROLLBACK

ALTER TABLE lobsink_documents MODIFY LOB (body) (RETENTION NONE)
/
