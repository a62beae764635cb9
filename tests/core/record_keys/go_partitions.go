// Write each key of a file with the partitioners of Go's clients, and print the partition in which each record lies.
//
//	go mod init partitions
//	go get github.com/IBM/sarama@v1.43.3 github.com/segmentio/kafka-go@v0.4.51 github.com/twmb/franz-go@v1.22.3
//	go run go_partitions.go BROKER keys.json > found.json
//
// keys.json is a list of keys in hex; null is a record without a key.  The program makes one topic of 12 partitions for each partitioner.
package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

const partitions = 12

func must[T any](found T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return found
}

func bySarama(broker, topic string, keys [][]byte, partitioner sarama.PartitionerConstructor) {
	config := sarama.NewConfig()
	config.Producer.Return.Successes = true
	if partitioner != nil {
		config.Producer.Partitioner = partitioner
	}
	producer := must(sarama.NewSyncProducer([]string{broker}, config))
	defer producer.Close()
	for n, key := range keys {
		message := &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(strconv.Itoa(n))}
		if key != nil {
			message.Key = sarama.ByteEncoder(key)
		}
		_, _, err := producer.SendMessage(message)
		must(0, err)
	}
}

func byKafkaGo(broker, topic string, keys [][]byte, balancer kafka.Balancer) {
	writer := &kafka.Writer{Addr: kafka.TCP(broker), Topic: topic, Balancer: balancer, BatchTimeout: 5 * time.Millisecond,
		Transport: &kafka.Transport{}} // of its own: the shared one does not know new topics yet
	defer writer.Close()
	messages := make([]kafka.Message, len(keys))
	for n, key := range keys {
		messages[n] = kafka.Message{Key: key, Value: []byte(strconv.Itoa(n))}
	}
	must(0, writer.WriteMessages(context.Background(), messages...))
}

func byFranz(broker, topic string, keys [][]byte, more ...kgo.Opt) {
	client := must(kgo.NewClient(append(more, kgo.SeedBrokers(broker))...))
	defer client.Close()
	for n, key := range keys {
		record := &kgo.Record{Topic: topic, Key: key, Value: []byte(strconv.Itoa(n))}
		must(0, client.ProduceSync(context.Background(), record).FirstErr())
	}
}

func fnv1a(key []byte) uint32 {
	hash := fnv.New32a()
	hash.Write(key)
	return hash.Sum32()
}

// partitionsOf reads where the records lie; a record's value is the number of its key.
func partitionsOf(broker, topic string, count int) []int {
	client := must(kgo.NewClient(kgo.SeedBrokers(broker), kgo.ConsumeTopics(topic)))
	defer client.Close()
	found := make([]int, count)
	for seen := 0; seen < count; {
		client.PollFetches(context.Background()).EachRecord(func(record *kgo.Record) {
			found[must(strconv.Atoi(string(record.Value)))] = int(record.Partition)
			seen++
		})
	}
	return found
}

func main() {
	broker := os.Args[1]
	var texts []*string
	must(0, json.Unmarshal(must(os.ReadFile(os.Args[2])), &texts))
	keys := make([][]byte, len(texts))
	for n, text := range texts {
		if text != nil {
			keys[n] = must(hex.DecodeString(*text))
		}
	}
	admin := must(sarama.NewClusterAdmin([]string{broker}, sarama.NewConfig()))
	writers := map[string]func(topic string){
		"sarama default":           func(topic string) { bySarama(broker, topic, keys, nil) },
		"sarama reference":         func(topic string) { bySarama(broker, topic, keys, sarama.NewReferenceHashPartitioner) },
		"sarama ConsistentCRC":     func(topic string) { bySarama(broker, topic, keys, sarama.NewConsistentCRCHashPartitioner) },
		"kafka-go Hash":            func(topic string) { byKafkaGo(broker, topic, keys, &kafka.Hash{}) },
		"kafka-go ReferenceHash":   func(topic string) { byKafkaGo(broker, topic, keys, &kafka.ReferenceHash{}) },
		"kafka-go CRC32Balancer":   func(topic string) { byKafkaGo(broker, topic, keys, kafka.CRC32Balancer{}) },
		"kafka-go Murmur2Balancer": func(topic string) { byKafkaGo(broker, topic, keys, kafka.Murmur2Balancer{}) },
		"franz-go default":         func(topic string) { byFranz(broker, topic, keys) },
		"franz-go SaramaCompatHasher": func(topic string) {
			byFranz(broker, topic, keys, kgo.RecordPartitioner(kgo.StickyKeyPartitioner(kgo.SaramaCompatHasher(fnv1a))))
		},
	}
	found := map[string][]int{}
	number := 0
	for name, write := range writers {
		number++
		topic := fmt.Sprintf("go-partitions-%d-%d", time.Now().UnixNano(), number)
		must(0, admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false))
		time.Sleep(time.Second)
		write(topic)
		found[name] = partitionsOf(broker, topic, len(keys))
	}
	must(0, json.NewEncoder(os.Stdout).Encode(found))
}
