// Package e2e holds the tests that see lobsink as a black box: the built
// binary, real servers, faults, and a byte comparison of every document at the
// end. What a document must be is read from the stream by the tests themselves;
// no code of lobsink takes part in that.
package e2e
