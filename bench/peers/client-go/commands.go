package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// writers is the number of concurrent writes.
const writers = 32

// encode reads pods, one JSON object per line, and writes each as length-prefixed protobuf (four bytes)
// without an envelope.
func encode(in, out string) error {
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	defer file.Close()
	writer := bufio.NewWriterSize(file, 1<<20)
	err = eachPod(in, func(pod *corev1.Pod) error {
		encoded, err := pod.Marshal()
		if err != nil {
			return err
		}
		if err := binary.Write(writer, binary.BigEndian, uint32(len(encoded))); err != nil {
			return err
		}
		_, err = writer.Write(encoded)
		return err
	})
	if err != nil {
		return err
	}
	return writer.Flush()
}

// fill writes pods and their namespaces to a server: one manager creates each pod, another writes its status.
// Existing objects are left unchanged.
func fill(kubeconfig, in string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	// Duplicate port names cause warnings, which are irrelevant here.
	config.WarningHandler = rest.NoWarnings{}
	config.ContentType = protobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx := context.Background()
	pods, failures := make(chan *corev1.Pod), make(chan error, writers)
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for pod := range pods {
				if err := write(ctx, client, pod); err != nil {
					failures <- fmt.Errorf("%s/%s: %w", pod.Namespace, pod.Name, err)
					return
				}
			}
		})
	}
	namespaces := map[string]bool{}
	err = eachPod(in, func(pod *corev1.Pod) error {
		if !namespaces[pod.Namespace] {
			namespaces[pod.Namespace] = true
			if err := prepare(ctx, client, pod); err != nil {
				return err
			}
		}
		select {
		case pods <- pod:
			return nil
		case err := <-failures:
			return err
		}
	})
	close(pods)
	group.Wait()
	select {
	case failure := <-failures:
		return failure
	default:
		return err
	}
}

// prepare creates a namespace and the objects that its pods need.
func prepare(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: pod.Namespace}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); ignoreExisting(err) != nil {
		return err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: pod.Spec.ServiceAccountName}}
	_, err := client.CoreV1().ServiceAccounts(pod.Namespace).Create(ctx, account, metav1.CreateOptions{})
	return ignoreExisting(err)
}

// write creates a pod and then its status, with two field managers.
func write(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) error {
	status := pod.Status
	pod.ResourceVersion, pod.UID, pod.ManagedFields = "", "", nil
	created, err := client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{FieldManager: "kube-controller-manager"})
	if err != nil {
		return ignoreExisting(err)
	}
	created.Status = status
	_, err = client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, created, metav1.UpdateOptions{FieldManager: "kubelet"})
	return err
}

// ignoreExisting returns nil if an object already exists, and the error otherwise.
func ignoreExisting(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// eachPod calls a function for each pod of a file with JSON lines.
func eachPod(in string, each func(*corev1.Pod) error) error {
	file, err := os.Open(in)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		pod := &corev1.Pod{}
		if err := json.Unmarshal(lines.Bytes(), pod); err != nil {
			return err
		}
		if err := each(pod); err != nil {
			return err
		}
	}
	return lines.Err()
}
