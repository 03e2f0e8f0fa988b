// etcd with one member, for the kube-apiserver beside it.
//
// It listens on loopback ports that the kernel chooses, so that no two ever want the same one, and says which in a
// file that appears whole: `etcd DATA-FOLDER ADDRESS-FILE`.
package main

import (
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"go.etcd.io/etcd/server/v3/embed"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: etcd DATA-FOLDER ADDRESS-FILE")
		os.Exit(2)
	}
	if err := serve(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		os.Exit(1)
	}
}

func serve(data, addressFile string) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)

	config := embed.NewConfig()
	config.Dir = data
	config.LogLevel = "warn"
	// Left unset, every request would be called slow.
	config.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration
	// Nothing here outlives the process, so nothing is worth waiting for the disk.
	config.UnsafeNoFsync = true
	anyPort := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	config.ListenClientUrls, config.AdvertiseClientUrls = anyPort, anyPort
	config.ListenPeerUrls, config.AdvertisePeerUrls = anyPort, anyPort
	config.InitialCluster = config.InitialClusterFromName(config.Name)

	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	defer etcd.Close()
	select {
	case <-etcd.Server.ReadyNotify():
	case err := <-etcd.Err():
		return err
	case <-signals:
		return nil
	}
	if err := announce(addressFile, "http://"+etcd.Clients[0].Addr().String()); err != nil {
		return err
	}
	select {
	case err := <-etcd.Err():
		return err
	case <-signals:
		return nil
	}
}

// announce writes a temporary file and renames it, so that a reader of the file always sees the complete address.
func announce(file, address string) error {
	if err := os.WriteFile(file+".new", []byte(address+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
