package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	protobuf = "application/vnd.kubernetes.protobuf"
	// byIndex is the name of the index.
	byIndex = "index"
	// groupLabel is the label with the group of a pod.
	groupLabel = "group"
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
		return queue(c.Keys, c.Workers, c.Metrics), nil
	}
	if p.pods == nil {
		return nil, errors.New("sync first")
	}
	switch c.Do {
	case "follow":
		return p.deliveries.follow(c.Until, c.Latency)
	case "read":
		switch c.Through {
		case "lister", "snapshot":
			return p.read(c.Seconds, false)
		case "projection", "typed":
			return p.read(c.Seconds, true)
		}
		return nil, fmt.Errorf("unknown value `%s` of `through`", c.Through)
	case "walk":
		return p.walk(c.Seconds)
	case "index":
		return p.lookUp(c.Seconds, c.Results)
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
	if err := p.pods.AddIndexers(cache.Indexers{byIndex: indexFunc(c.Index)}); err != nil {
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

// indexFunc returns the function of an index by node or by group.
func indexFunc(index string) cache.IndexFunc {
	return func(object any) ([]string, error) {
		pod, ok := object.(*corev1.Pod)
		if !ok {
			return nil, fmt.Errorf("%T is not a pod", object)
		}
		if index == "group" {
			return []string{pod.Labels[groupLabel]}, nil
		}
		return []string{pod.Spec.NodeName}, nil
	}
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
