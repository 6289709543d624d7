-- Storage choice: the index of document keys with the bytes of each key reversed.
-- For keys that grow with time (dates, ULIDs): without it all instances of a cluster
-- insert into the same block at the end of the index. Listing documents in order of
-- their keys then has to sort.
--
-- Licence: none
-- Runs: after the tables
-- Excludes: partitioning
--
-- Not run on Oracle.

SET DEFINE OFF
SET SQLBLANKLINES ON
WHENEVER SQLERROR EXIT FAILURE ROLLBACK

ALTER INDEX lobsink_documents_pk REBUILD REVERSE
/
