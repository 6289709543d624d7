//go:build !linux && !darwin && !freebsd

package embednats

import "os"

// tryLock cannot lock on this system: whoever runs two servers on one folder
// has to know better.
func tryLock(*os.File) error { return nil }

func diskFree(string) int64 { return unknownFree }
