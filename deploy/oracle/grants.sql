-- What a DBA grants for lobsink. Not run on Oracle.
--
-- LOBSINK owns the tables and the package, LOBSINK_APP is the user that lobsink runs
-- as. `lobsink schema grants` prints this with other names. The first part comes
-- before the tables are made, the second after it.
--
-- The owner needs no session: it may be made with NO AUTHENTICATION, and a quota on
-- its own tablespace only:
--
--   CREATE USER LOBSINK NO AUTHENTICATION DEFAULT TABLESPACE lobsink QUOTA 200G ON lobsink
--   CREATE USER LOBSINK_APP IDENTIFIED BY ... DEFAULT TABLESPACE lobsink
--
-- No role, no ANY privilege, no UNLIMITED TABLESPACE, no synonym, no right on AQ,
-- Java, jobs, directories or the network is needed.

SET DEFINE OFF
WHENEVER SQLERROR EXIT FAILURE ROLLBACK

-- lobsink:owner begin
-- To make the tables; may be revoked afterwards.
GRANT CREATE TABLE, CREATE VIEW, CREATE PROCEDURE TO LOBSINK
/

-- What the package calls. Hardened databases have revoked it from PUBLIC, and a
-- right that comes by a role does not count in a package.
GRANT EXECUTE ON SYS.DBMS_LOB TO LOBSINK
/
GRANT EXECUTE ON SYS.UTL_RAW TO LOBSINK
/
-- lobsink:owner end

-- lobsink:user begin
-- After the tables and the package were made. READ, not SELECT: who may SELECT may
-- lock rows, and stop a partition.
GRANT CREATE SESSION TO LOBSINK_APP
/
GRANT EXECUTE ON LOBSINK.lobsink_v1 TO LOBSINK_APP
/
GRANT READ ON LOBSINK.lobsink_schema TO LOBSINK_APP
/
GRANT READ ON LOBSINK.lobsink_layout TO LOBSINK_APP
/
GRANT READ ON LOBSINK.lobsink_texts TO LOBSINK_APP
/
-- lobsink:user end
