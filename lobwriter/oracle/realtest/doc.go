// Package realtest holds the tests that need a real Oracle database. They are
// switched on by LOBSINK_TEST_ORACLE, see `make test-oracle`, and make tables whose
// names begin with lobsink_test_, which they remove at the end.
//
// They are apart from the tests of package oracle because a process loads one client
// library only, and those load the stand-in.
//
// Nobody has run them on Oracle yet. The order of the files is that of a first hour
// with a database: what could not be known without one comes first.
package realtest
