//go:build !linux

package bench

import "time"

// What a process uses is known on Linux only.

func cpuTime(int) (time.Duration, bool) { return 0, false }

func family(int) []int { return nil }

func processName(int) string { return "" }

func bytesWritten() (int64, bool) { return 0, false }

func resetPeak() {}

func peakMemory() (int64, bool) { return 0, false }
