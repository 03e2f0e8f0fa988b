package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
)

const (
	protobuf = "application/vnd.kubernetes.protobuf"
	byNode   = "node"
	// syncTimeout is the time limit of a sync.
	syncTimeout = 10 * time.Minute
)

// peer is the state of the program: the informer and its handlers after a sync.
type peer struct {
	kubeconfig string
	pods       cache.SharedIndexInformer
	deliveries *deliveries
}

// execute executes a command and returns its response.
func (p *peer) execute(c command) (response, error) {
	switch c.Do {
	case "sync":
		return p.sync(c)
	case "report":
		return report(c.Reset), nil
	case "queue":
		return queue(c.Keys, c.Workers), nil
	}
	if p.pods == nil {
		return nil, errors.New("sync first")
	}
	switch c.Do {
	case "follow":
		return p.deliveries.follow(c.Until, c.Latency)
	case "read":
		return p.read(c.Seconds, c.Typed)
	case "index":
		return p.lookUp(c.Seconds)
	case "count":
		return p.count(c.Revision)
	}
	return nil, fmt.Errorf("unknown command `%s`", c.Do)
}

func (p *peer) sync(c command) (response, error) {
	if c.Resource != "pods" {
		return nil, fmt.Errorf("unknown resource `%s` (use `pods`)", c.Resource)
	}
	if c.Strategy == "list" {
		// Read once, by the first reflector.
		os.Setenv("KUBE_FEATURE_WatchListClient", "false")
	}
	config, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig)
	if err != nil {
		return nil, err
	}
	// By default the clientset requests protobuf.
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	if c.Encoding == "protobuf" {
		config.ContentType, config.AcceptContentTypes = protobuf, protobuf+",application/json"
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	stats := startStats()
	factory := informers.NewSharedInformerFactory(client, 0)
	p.pods = factory.Core().V1().Pods().Informer()
	if c.Strip {
		if err := p.pods.SetTransform(strip); err != nil {
			return nil, err
		}
	}
	if err := p.pods.AddIndexers(cache.Indexers{byNode: nodeOf}); err != nil {
		return nil, err
	}
	handlers := max(c.Handlers, 1)
	p.deliveries = newDeliveries(handlers)
	synced := []cache.InformerSynced{p.pods.HasSynced}
	for number := range handlers {
		registration, err := p.pods.AddEventHandler(p.deliveries.handler(number))
		if err != nil {
			return nil, err
		}
		synced = append(synced, registration.HasSynced)
	}
	ctx, cancel := context.WithTimeout(context.Background(), syncTimeout)
	defer cancel()
	factory.Start(context.Background().Done())
	// cache.WaitForCacheSync polls every 100 ms, which is longer than a small sync takes.
	for _, done := range synced {
		for !done() {
			if ctx.Err() != nil {
				return nil, fmt.Errorf("not synced after %v", syncTimeout)
			}
			time.Sleep(time.Millisecond)
		}
	}
	return stats.response(response{"objects": len(p.pods.GetIndexer().ListKeys())}), nil
}

// strip is the transform that many programs use to save memory.
func strip(object any) (any, error) {
	if pod, ok := object.(*corev1.Pod); ok {
		pod.ManagedFields = nil
	}
	return object, nil
}

func nodeOf(object any) ([]string, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return nil, fmt.Errorf("%T is not a pod", object)
	}
	return []string{pod.Spec.NodeName}, nil
}

// count returns the number of pods, of pods with a revision if one is given, and of events delivered so far.
func (p *peer) count(revision *string) (response, error) {
	r := response{"objects": len(p.pods.GetIndexer().ListKeys()), "delivered": p.deliveries.events()}
	if revision == nil {
		return r, nil
	}
	revised := 0
	for _, object := range p.pods.GetIndexer().List() {
		pod, ok := object.(*corev1.Pod)
		if !ok {
			return nil, fmt.Errorf("%T is not a pod", object)
		}
		if pod.Annotations["revision"] == *revision {
			revised++
		}
	}
	r["revised"] = revised
	return r, nil
}

func (p *peer) read(seconds float64, typed bool) (response, error) {
	indexer := p.pods.GetIndexer()
	keys := indexer.ListKeys()
	random := rand.New(rand.NewPCG(1, 1))
	gets, found := 0, 0
	stats := startStats()
	for stats.seconds() < seconds {
		for range 32 {
			object, exists, err := indexer.GetByKey(keys[random.IntN(len(keys))])
			if err != nil {
				return nil, err
			}
			if exists && typed {
				pod, ok := object.(*corev1.Pod)
				if !ok {
					return nil, fmt.Errorf("%T is not a pod", object)
				}
				exists = len(pod.Spec.Containers) > 0
			}
			if exists {
				found++
			}
			gets++
		}
	}
	return stats.response(response{"gets": gets, "found": found}), nil
}

func (p *peer) lookUp(seconds float64) (response, error) {
	indexer := p.pods.GetIndexer()
	nodes := indexer.ListIndexFuncValues(byNode)
	random := rand.New(rand.NewPCG(1, 1))
	lookups, found := 0, 0
	stats := startStats()
	for stats.seconds() < seconds {
		pods, err := indexer.ByIndex(byNode, nodes[random.IntN(len(nodes))])
		if err != nil {
			return nil, err
		}
		found += len(pods)
		lookups++
	}
	return stats.response(response{"lookups": lookups, "found": found}), nil
}

// queue measures from the first add until the last key is done; it returns how many were done.
func queue(keys, workers int) response {
	names := make([]string, keys)
	for number := range names {
		names[number] = fmt.Sprintf("default/pod-%07d", number)
	}
	q := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, 1000*time.Second))
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
