// Package oracle keeps documents in an Oracle database: one row and one CLOB for
// each, to which a flush appends with one DBMS_LOB.WRITEAPPEND per chunk.
//
// What has to be one transaction is one procedure of package lobsink_v1, in
// deploy/oracle. It is called in an anonymous block with index-by tables, outside
// a transaction of Go's, so that the driver commits with the call: a flush is one
// round trip. Text goes as RAW, because the driver makes a temporary CLOB, of
// seven round trips, of every string above 8,191 bytes.
//
// The driver, godror, is C: it needs cgo, and Oracle's client library at run time.
// Without cgo this package compiles, and Open says what is missing.
//
// Nothing of it was run on Oracle. The tests run the real driver against a
// stand-in for the client library, see package standin for what that cannot show.
package oracle
