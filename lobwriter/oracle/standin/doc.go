// Package standin stands in for Oracle's client library and for a database behind
// it, so that tests can run the real driver, godror with its C library ODPI-C,
// without either.
//
// The client library is a few hundred lines of C in client/, built by Build. It
// knows no SQL: what would be a round trip to a database is a frame to a Server,
// which counts it, lets it fail as a test wishes, and looks up the procedure in a
// table. Behind the table is the reference store of the contract, lobtest.Memory.
//
// What it shows is that of the driver and of this side of it: how values are
// bound, what is one round trip, what a lost connection, a late reply or an error
// of the database becomes, that no locator and no temporary LOB is asked for.
//
// What it cannot show is anything about Oracle: whether the package compiles,
// whether a database takes these binds (RAW of 32,767 bytes in a table, above
// all), what its LOBs, locks, character sets, sessions and clocks do, and how fast
// it is. It knows integers, text and RAW only. A call is atomic here, so that a
// transaction that is left open shows only as a refused call. Nothing that is
// green here was tested on Oracle.
package standin
