package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of times in /proc/PID/stat: USER_HZ, which is 100 on every
// architecture of Linux that Go runs on.
const tick = time.Second / 100

// cpuTime returns the processor time that a process has used; false: unknown.
func cpuTime(pid int) (time.Duration, bool) {
	fields, ok := processStat(pid)
	if !ok {
		return 0, false
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * tick, err1 == nil && err2 == nil
}

// processStat returns the fields of /proc/PID/stat behind the name, which is the
// only one that may have blanks. The first is the state.
func processStat(pid int) ([]string, bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, false
	}
	_, rest, ok := bytes.Cut(text[max(0, bytes.LastIndexByte(text, ')')):], []byte(") "))
	fields := strings.Fields(string(rest))
	return fields, ok && len(fields) > 13
}

// family returns the parent of a process and all its children.
func family(pid int) []int {
	fields, ok := processStat(pid)
	if !ok {
		return nil
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil || parent <= 1 {
		return nil
	}
	all := []int{parent}
	found, _ := filepath.Glob("/proc/[0-9]*") // fails for a bad pattern only
	for _, path := range found {
		child, err := strconv.Atoi(filepath.Base(path))
		if err != nil {
			continue
		}
		if f, ok := processStat(child); ok && f[1] == fields[1] {
			all = append(all, child)
		}
	}
	return all
}

// processName returns the name of a process, as its executable has it.
func processName(pid int) string {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(name))
}

// bytesWritten returns how many bytes this process has caused to be written to
// disks; false: unknown.
func bytesWritten() (int64, bool) { return procNumber("/proc/self/io", "write_bytes:") }

// resetPeak makes peakMemory begin anew.
func resetPeak() {
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // otherwise the peak is one of all that was before
}

// peakMemory returns the most bytes of memory that this process had; false:
// unknown.
func peakMemory() (int64, bool) {
	kib, ok := procNumber("/proc/self/status", "VmHWM:")
	return kib << 10, ok
}

// procNumber returns the number behind a name in a file of /proc.
func procNumber(path, name string) (int64, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			fields := strings.Fields(rest)
			if len(fields) == 0 {
				return 0, false
			}
			n, err := strconv.ParseInt(fields[0], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
