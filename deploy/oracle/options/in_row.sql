-- Storage choice: documents up to about 4,000 bytes in their row. For documents that
-- stay small and are written once or twice; a growing one is written again with each
-- append as long as it fits. Before the first document: it moves the table.
--
-- Licence: none
-- Runs: after the tables
-- Excludes: partitioning, body-tables
--
-- Not run on Oracle.

SET DEFINE OFF
SET SQLBLANKLINES ON
WHENEVER SQLERROR EXIT FAILURE ROLLBACK

ALTER TABLE lobsink_documents MOVE
  LOB (body) STORE AS SECUREFILE (ENABLE STORAGE IN ROW CACHE LOGGING)
/

ALTER INDEX lobsink_documents_pk REBUILD
/
