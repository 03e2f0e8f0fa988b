package main

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// queue measures from the first add until the last key is done; it returns how many were done.
func queue(keys, workers int, metrics bool) response {
	names := make([]string, keys)
	for number := range names {
		names[number] = fmt.Sprintf("default/pod-%07d", number)
	}
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, 1000*time.Second)
	config := workqueue.TypedRateLimitingQueueConfig[string]{}
	if metrics {
		// Only queues with a name have metrics.
		config.Name, config.MetricsProvider = "bench", metricsProvider{}
	}
	q := workqueue.NewTypedRateLimitingQueueWithConfig(limiter, config)
	stats := startStats()
	if workers == 0 {
		completed := 0
		for _, name := range names {
			q.Add(name)
			key, shutdown := q.Get()
			if shutdown {
				break
			}
			q.Forget(key)
			q.Done(key)
			completed++
		}
		return response{"keys": completed, "seconds": stats.seconds()}
	}
	done := make(chan int)
	for range workers {
		go func() {
			completed := 0
			for {
				key, shutdown := q.Get()
				if shutdown {
					break
				}
				q.Forget(key)
				q.Done(key)
				completed++
			}
			done <- completed
		}()
	}
	for _, name := range names {
		q.Add(name)
	}
	q.ShutDown()
	completed := 0
	for range workers {
		completed += <-done
	}
	return response{"keys": completed, "seconds": stats.seconds()}
}

// metricsProvider provides the least that a program with metrics needs: atomic numbers, and histograms with the
// twelve buckets of Kubernetes. Prometheus's own types take longer.
type metricsProvider struct{}

func (metricsProvider) NewDepthMetric(string) workqueue.GaugeMetric            { return &number{} }
func (metricsProvider) NewAddsMetric(string) workqueue.CounterMetric           { return &number{} }
func (metricsProvider) NewRetriesMetric(string) workqueue.CounterMetric        { return &number{} }
func (metricsProvider) NewLatencyMetric(string) workqueue.HistogramMetric      { return &histogram{} }
func (metricsProvider) NewWorkDurationMetric(string) workqueue.HistogramMetric { return &histogram{} }
func (metricsProvider) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric {
	return &number{}
}
func (metricsProvider) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return &number{}
}

// number is a counter or a gauge.
type number struct{ value atomic.Int64 }

func (n *number) Inc()              { n.value.Add(1) }
func (n *number) Dec()              { n.value.Add(-1) }
func (n *number) Set(value float64) { n.value.Store(int64(value)) }

// histogram counts observations in buckets of ten nanoseconds, a hundred, and so on.
type histogram struct {
	buckets [13]atomic.Uint64
	sum     atomic.Uint64
}

func (h *histogram) Observe(seconds float64) {
	bucket, bound := 0, 1e-8
	for bucket < len(h.buckets)-1 && seconds > bound {
		bucket, bound = bucket+1, bound*10
	}
	h.buckets[bucket].Add(1)
	for {
		before := h.sum.Load()
		if h.sum.CompareAndSwap(before, math.Float64bits(math.Float64frombits(before)+seconds)) {
			return
		}
	}
}
