// fill writes so many megabytes of random values to an etcd.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Each value has 100 kB, and eight are on their way at once.
const (
	size   = 100_000
	atOnce = 8
)

func main() {
	megabytes, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{os.Args[1]}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	var writers sync.WaitGroup
	for w := range atOnce {
		writers.Go(func() {
			value := make([]byte, size)
			for i := w; i < megabytes*1_000_000/size; i += atOnce {
				_, _ = rand.Read(value) // never fails
				if _, err := client.Put(ctx, fmt.Sprintf("key-%08d", i), string(value)); err != nil {
					log.Fatal(err)
				}
			}
		})
	}
	writers.Wait()
}
