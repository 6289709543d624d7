package sqlite

// URI is the name of a file for the driver.
var URI = uri
