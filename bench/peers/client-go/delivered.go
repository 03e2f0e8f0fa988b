package main

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

const (
	// sent is the annotation with the time at which a frame was sent, in nanoseconds since 1970.
	sent = "bench.example.com/sent"
	// stallTimeout is the time without any event after which the run fails.
	stallTimeout = 10 * time.Minute
)

// deliveries counts the events delivered to all handlers; each handler writes to its own counters.
type deliveries struct {
	handlers []counters
	timed    atomic.Bool
	// latencies are in nanoseconds; written by the first handler, read when it is idle.
	latencies []int64
}

// counters are the events and the highest version of one handler, padded to a cache line.
type counters struct {
	events  atomic.Uint64
	highest atomic.Uint64
	_       [48]byte
}

func newDeliveries(handlers int) *deliveries {
	return &deliveries{handlers: make([]counters, handlers)}
}

func (d *deliveries) handler(number int) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { d.record(number, object) },
		UpdateFunc: func(_, object any) { d.record(number, object) },
		DeleteFunc: func(object any) { d.record(number, object) },
	}
}

// record counts an event of a handler.
func (d *deliveries) record(number int, object any) {
	if deleted, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = deleted.Obj
	}
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	handler := &d.handlers[number]
	if number == 0 && d.timed.Load() {
		if at, err := strconv.ParseInt(pod.Annotations[sent], 10, 64); err == nil {
			d.latencies = append(d.latencies, max(time.Now().UnixNano()-at, 0))
		}
	}
	handler.events.Add(1)
	// A version that is not a number is never waited for.
	if version, err := strconv.ParseUint(pod.ResourceVersion, 10, 64); err == nil && version > handler.highest.Load() {
		handler.highest.Store(version)
	}
}

// events returns the number of events delivered to all handlers.
func (d *deliveries) events() (sum uint64) {
	for number := range d.handlers {
		sum += d.handlers[number].events.Load()
	}
	return sum
}

// reached returns the version that every handler has reached.
func (d *deliveries) reached() uint64 {
	lowest := uint64(math.MaxUint64)
	for number := range d.handlers {
		lowest = min(lowest, d.handlers[number].highest.Load())
	}
	return lowest
}

// follow waits until every handler has reached this version, and returns the measurements.
func (d *deliveries) follow(until uint64, latency bool) (response, error) {
	d.timed.Store(latency)
	stats, before := startStats(), d.events()
	last, moved := before, time.Now()
	for d.reached() < until {
		time.Sleep(time.Millisecond)
		if events := d.events(); events != last {
			last, moved = events, time.Now()
		} else if time.Since(moved) > stallTimeout {
			return nil, fmt.Errorf("no event for %v while waiting for version %d", stallTimeout, until)
		}
	}
	r := stats.response(response{"events": d.events() - before})
	if latency {
		d.timed.Store(false)
		taken := d.latencies
		d.latencies = nil
		r["latency"] = percentiles(taken)
	}
	return r, nil
}

// percentiles returns percentiles in microseconds.
func percentiles(nanos []int64) response {
	slices.Sort(nanos)
	at := func(thousandths int) any {
		if len(nanos) == 0 {
			return nil
		}
		index := max((len(nanos)*thousandths+999)/1000-1, 0)
		return float64(nanos[index]) / 1000
	}
	return response{"n": len(nanos), "p50": at(500), "p99": at(990), "p999": at(999), "max": at(1000)}
}

// processStats is a starting point in wall time and CPU time.
type processStats struct {
	started time.Time
	cpu     float64
}

func startStats() processStats {
	return processStats{started: time.Now(), cpu: cpu()}
}

func (s processStats) seconds() float64 {
	return time.Since(s.started).Seconds()
}

// response adds the elapsed times to a response.
func (s processStats) response(r response) response {
	r["seconds"] = s.seconds()
	r["cpu"] = cpu() - s.cpu
	return r
}

// measurement is a running measurement of work beside the changes.
type measurement struct {
	processStats
	deliveries *deliveries
	before     uint64
}

func (d *deliveries) measure() measurement {
	return measurement{startStats(), d, d.reached()}
}

// response adds the elapsed times and the number of changes that every handler has seen meanwhile: the replay
// server increments the version with each change.
func (m measurement) response(r response) response {
	r["changes"] = m.deliveries.reached() - m.before
	return m.processStats.response(r)
}

// report returns memory and CPU time of the process, after a garbage collection.
func report(reset bool) response {
	peak := status("VmHWM")
	runtime.GC()
	debug.FreeOSMemory()
	r := response{"rss": status("VmRSS"), "peak": peak, "cpu": cpu()}
	if reset {
		// A kernel without this file does not report the peak either.
		_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0o600)
	}
	return r
}

// status returns a field of /proc/self/status in bytes, or nil if it is missing.
func status(name string) any {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			kilobytes, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			if err == nil {
				return kilobytes * 1024
			}
		}
	}
	return nil
}

// cpu returns the CPU seconds of the whole process.
func cpu() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	seconds := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return seconds(usage.Utime) + seconds(usage.Stime)
}
