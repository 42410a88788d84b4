// fill writes so many megabytes of random values to an etcd.
package main

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Eight requests are on their way at once, each of at most so many bytes and values.
const (
	atOnce     = 8
	most       = 400_000
	mostValues = 100
)

func main() {
	if len(os.Args) != 4 {
		log.Fatal("fill ENDPOINT MEGABYTES BYTES-OF-A-VALUE")
	}
	megabytes, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	size, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{os.Args[1]}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	defer cancel()
	values := megabytes * 1_000_000 / size
	each := max(1, min(mostValues, most/size))
	var writers sync.WaitGroup
	for w := range atOnce {
		writers.Go(func() {
			random := rand.NewChaCha8([32]byte{byte(w)})
			for i := w * each; i < values; i += atOnce * each {
				puts := make([]clientv3.Op, each)
				for n := range puts {
					value := make([]byte, size)
					_, _ = random.Read(value) // never fails
					puts[n] = clientv3.OpPut(fmt.Sprintf("key-%09d", i+n), string(value))
				}
				if _, err := client.Txn(ctx).Then(puts...).Commit(); err != nil {
					log.Fatal(err)
				}
			}
		})
	}
	writers.Wait()
}
