package main

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
)

// duration is a time.Duration as people write it.
type duration time.Duration

// Set implements pflag.Value.
func (d *duration) Set(text string) error {
	v, err := time.ParseDuration(text)
	if err != nil || v < 0 {
		return fmt.Errorf("%q is not a duration; write a number with a unit, such as 250ms, 10s or 5m", text)
	}
	*d = duration(v)
	return nil
}

func (d *duration) String() string { return time.Duration(*d).String() }

// Type implements pflag.Value.
func (d *duration) Type() string { return "duration" }

// size is a number of bytes as people write it.
type size int64

// Set implements pflag.Value.
func (s *size) Set(text string) error {
	v, err := humanize.ParseBytes(text)
	if err != nil || v > math.MaxInt64 {
		return fmt.Errorf("%q is not a size; write bytes, or a number with a unit, such as 32767, 64KiB or 256MiB", text)
	}
	*s = size(v)
	return nil
}

// String returns a text that Set turns into the same number.
func (s *size) String() string { return bytesText(int64(*s)) }

// Type implements pflag.Value.
func (s *size) Type() string { return "size" }

// bytesText writes a number of bytes without rounding.
func bytesText(n int64) string {
	for _, unit := range []struct {
		bytes int64
		name  string
	}{{1 << 40, "TiB"}, {1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n != 0 && n%unit.bytes == 0 {
			return strconv.FormatInt(n/unit.bytes, 10) + unit.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// count is a whole number.
type count int

// Set implements pflag.Value.
func (c *count) Set(text string) error {
	v, err := strconv.Atoi(text)
	if err != nil || v < 0 {
		return fmt.Errorf("%q is not a whole number", text)
	}
	*c = count(v)
	return nil
}

func (c *count) String() string {
	if *c == 0 {
		return "" // none was said
	}
	return strconv.Itoa(int(*c))
}

// Type implements pflag.Value.
func (c *count) Type() string { return "number" }
