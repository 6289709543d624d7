//go:build !race

package consumer

// raceDetector tells that the tests run with the race detector.
const raceDetector = false
