-- Storage choice: compressed LOBs. XML shrinks to a fraction, at the price of
-- processor time on the database server. Applies to what is written from then on.
--
-- Licence: Oracle Advanced Compression (an option of Enterprise Edition)
-- Runs: last
-- Excludes: partitioning, body-tables
--
-- Not run on Oracle.

SET DEFINE OFF
SET SQLBLANKLINES ON
WHENEVER SQLERROR EXIT FAILURE ROLLBACK

ALTER TABLE lobsink_documents MODIFY LOB (body) (COMPRESS MEDIUM)
/
