package main

import (
	"fmt"
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
	// Time without any event after which the run fails.
	stalled = 10 * time.Minute
)

// deliveries counts the events delivered to all handlers; each handler writes to its own counters.
type deliveries struct {
	handlers []counters
	timed    atomic.Bool
	// In nanoseconds; written by the first handler, read when it is idle.
	latencies []int64
}

type counters struct {
	events  atomic.Uint64
	highest atomic.Uint64
	_       [48]byte
}

func newDeliveries(handlers int) *deliveries {
	return &deliveries{handlers: make([]counters, handlers)}
}

func (t *deliveries) handler(number int) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { t.note(number, object) },
		UpdateFunc: func(_, object any) { t.note(number, object) },
		DeleteFunc: func(object any) { t.note(number, object) },
	}
}

func (t *deliveries) note(number int, object any) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	noted := &t.handlers[number]
	if number == 0 && t.timed.Load() {
		if at, err := strconv.ParseInt(pod.Annotations[sent], 10, 64); err == nil {
			t.latencies = append(t.latencies, max(time.Now().UnixNano()-at, 0))
		}
	}
	noted.events.Add(1)
	// A version that is not a number is never waited for.
	if version, err := strconv.ParseUint(pod.ResourceVersion, 10, 64); err == nil && version > noted.highest.Load() {
		noted.highest.Store(version)
	}
}

func (t *deliveries) events() (sum uint64) {
	for number := range t.handlers {
		sum += t.handlers[number].events.Load()
	}
	return sum
}

func (t *deliveries) reached(until uint64) bool {
	for number := range t.handlers {
		if t.handlers[number].highest.Load() < until {
			return false
		}
	}
	return true
}

func (t *deliveries) follow(until uint64, latency bool) (answer, error) {
	t.timed.Store(latency)
	began, before := begin(), t.events()
	last, moved := before, time.Now()
	for !t.reached(until) {
		time.Sleep(time.Millisecond)
		if events := t.events(); events != last {
			last, moved = events, time.Now()
		} else if time.Since(moved) > stalled {
			return nil, fmt.Errorf("no event for %v while waiting for version %d", stalled, until)
		}
	}
	a := began.answer(answer{"events": t.events() - before})
	if latency {
		t.timed.Store(false)
		taken := t.latencies
		t.latencies = nil
		a["latency"] = percentiles(taken)
	}
	return a, nil
}

// percentiles are in microseconds.
func percentiles(nanos []int64) answer {
	slices.Sort(nanos)
	at := func(thousandths int) any {
		if len(nanos) == 0 {
			return nil
		}
		place := max((len(nanos)*thousandths+999)/1000-1, 0)
		return float64(nanos[place]) / 1000
	}
	return answer{"n": len(nanos), "p50": at(500), "p99": at(990), "p999": at(999), "max": at(1000)}
}

// gauge is a starting point in wall time and CPU time.
type gauge struct {
	begun time.Time
	cpu   float64
}

func begin() gauge {
	return gauge{begun: time.Now(), cpu: cpu()}
}

func (g gauge) seconds() float64 {
	return time.Since(g.begun).Seconds()
}

func (g gauge) answer(a answer) answer {
	a["seconds"] = g.seconds()
	a["cpu"] = cpu() - g.cpu
	return a
}

// report returns memory and CPU time of the process, after a garbage collection.
func report(reset bool) answer {
	peak := status("VmHWM")
	runtime.GC()
	debug.FreeOSMemory()
	a := answer{"rss": status("VmRSS"), "peak": peak, "cpu": cpu()}
	if reset {
		// A kernel without this file does not report the peak either.
		_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0o600)
	}
	return a
}

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

func cpu() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	seconds := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return seconds(usage.Utime) + seconds(usage.Stime)
}
