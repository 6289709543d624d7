-- Removes lobsink from a schema, with all documents. Not run on Oracle.
--
-- Run by SQL*Plus or SQLcl in the owner's schema. What is not there is no error. A
-- table that documents were attached to is not touched. Tables go to the recycle
-- bin, where that is on; PURGE RECYCLEBIN frees their space.

SET DEFINE OFF
SET SQLBLANKLINES ON
WHENEVER SQLERROR EXIT FAILURE ROLLBACK

DECLARE
  PROCEDURE remove(p_statement IN VARCHAR2) IS
  BEGIN
    EXECUTE IMMEDIATE p_statement;
  EXCEPTION
    WHEN OTHERS THEN
      IF SQLCODE NOT IN (-942, -4043) THEN  -- table or view, object does not exist
        RAISE;
      END IF;
  END remove;
BEGIN
  remove('DROP PACKAGE lobsink_v1');
  remove('DROP VIEW lobsink_texts');
  remove('DROP VIEW lobsink_bodies');
  FOR t IN (SELECT owner, table_name
              FROM all_tables
             WHERE owner = SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA') AND REGEXP_LIKE(table_name, '^LOBSINK_BODIES_[0-9]+$')) LOOP
    remove('DROP TABLE "' || t.owner || '"."' || t.table_name || '"');
  END LOOP;
  remove('DROP TABLE lobsink_repairs');
  remove('DROP TABLE lobsink_documents');
  remove('DROP TABLE lobsink_members');
  remove('DROP TABLE lobsink_leases');
  remove('DROP TABLE lobsink_fences');
  remove('DROP TABLE lobsink_binding');
  remove('DROP TABLE lobsink_layout');
  remove('DROP TABLE lobsink_schema');
END;
/
