-- Storage choice: what an append has freed is kept for 300 seconds, in place of the
-- undo retention, which may be hours. Change the number to the longest time that
-- reading a document takes.
--
-- Licence: none
-- Runs: last
-- Excludes: partitioning, body-tables, retention-none
--
-- Not run on Oracle.

SET DEFINE OFF
SET SQLBLANKLINES ON
WHENEVER SQLERROR EXIT FAILURE ROLLBACK

ALTER TABLE lobsink_documents MODIFY LOB (body) (RETENTION MIN 300)
/
