package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// batch is the number of reads between two readings of the clock.
const batch = 32

func (p *peer) read(seconds float64, typed bool) (response, error) {
	indexer := p.pods.GetIndexer()
	keys := indexer.ListKeys()
	for number, key := range keys {
		// A key from a work queue is not the string that the cache contains.
		keys[number] = strings.Clone(key)
	}
	random := rand.New(rand.NewPCG(1, 1))
	gets, found := 0, 0
	m := p.deliveries.measure()
	for m.seconds() < seconds {
		for range batch {
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
		}
		gets += batch
	}
	return m.response(response{"gets": gets, "found": found}), nil
}

// walk reads six fields of every pod, again and again.
func (p *peer) walk(seconds float64) (response, error) {
	indexer := p.pods.GetIndexer()
	objects, sum := 0, 0
	m := p.deliveries.measure()
	for m.seconds() < seconds {
		sum = 0
		for _, object := range indexer.List() {
			pod, ok := object.(*corev1.Pod)
			if !ok {
				return nil, fmt.Errorf("%T is not a pod", object)
			}
			sum += sumOfFields(pod)
			objects++
		}
	}
	return m.response(response{"objects": objects, "sum": sum}), nil
}

// sumOfFields reads phase, node, images, restarts, requests and owner of a pod and returns a sum, which is the
// same in all programs: lengths of texts, restarts, and one for each request of CPU and memory.
func sumOfFields(pod *corev1.Pod) int {
	sum := len(pod.Status.Phase) + len(pod.Spec.NodeName)
	for number := range pod.Spec.Containers {
		container := &pod.Spec.Containers[number]
		sum += len(container.Image)
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if size, exists := container.Resources.Requests[name]; exists && !size.IsZero() {
				sum++
			}
		}
	}
	for number := range pod.Status.ContainerStatuses {
		sum += int(pod.Status.ContainerStatuses[number].RestartCount)
	}
	for number := range pod.OwnerReferences {
		sum += len(pod.OwnerReferences[number].Name)
	}
	return sum
}

// lookUp looks up the pods with random values of the index, or random groups of this many pods.
func (p *peer) lookUp(seconds float64, results int) (response, error) {
	indexer := p.pods.GetIndexer()
	var values []string
	if results == 0 {
		values = indexer.ListIndexFuncValues(byIndex)
	} else {
		// Each 122 pods are a group of 2, one of 20 and one of 100.
		for number := range len(indexer.ListKeys()) / 122 {
			values = append(values, fmt.Sprintf("%03d-%07d", results, number))
		}
	}
	if len(values) == 0 {
		return nil, errors.New("the index has no values to look up")
	}
	random := rand.New(rand.NewPCG(1, 1))
	lookups, found := 0, 0
	m := p.deliveries.measure()
	for m.seconds() < seconds {
		for range batch {
			pods, err := indexer.ByIndex(byIndex, values[random.IntN(len(values))])
			if err != nil {
				return nil, err
			}
			found += len(pods)
		}
		lookups += batch
	}
	return m.response(response{"lookups": lookups, "found": found}), nil
}
