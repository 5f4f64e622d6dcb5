// A client of the Go ecosystem (franz-go) at work on a cluster: admin, idempotent producer, a cooperative group of two,
// transactions from topic to topic. Each step prints one line of JSON; the first thing that is not as expected ends it.
// With "lag" as first argument: the lag of a group, as exporters that are built on franz-go work it out.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	records    = 40
	partitions = 4
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 120*time.Second)
	defer cancel()
	if os.Args[1] == "lag" {
		work := &work{ctx: ctx, servers: os.Args[2], group: os.Args[3]}
		work.admin = kadm.NewClient(work.client())
		work.lag()
		return
	}
	servers, prefix := os.Args[1], os.Args[2]
	work := &work{ctx: ctx, servers: servers, in: prefix + "-in", out: prefix + "-out", group: prefix + "-group"}
	work.admin = kadm.NewClient(work.client())
	work.createTopics()
	work.produce()
	work.consumeTogether()
	work.transact()
	work.cleanUp()
}

type work struct {
	ctx            context.Context
	servers        string
	in, out, group string
	admin          *kadm.Client
}

func (w *work) client(options ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(w.servers)}, options...)...)
	check(err)
	return client
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func tell(step string, facts map[string]any) {
	facts["step"] = step
	line, err := json.Marshal(facts)
	check(err)
	fmt.Println(string(line))
}

func (w *work) createTopics() {
	retention := "86400000"
	configs := map[string]*string{"retention.ms": &retention}
	created, err := w.admin.CreateTopics(w.ctx, partitions, 1, configs, w.in, w.out)
	check(err)
	for _, topic := range created {
		check(topic.Err)
	}
	again, err := w.admin.CreateTopics(w.ctx, 1, 1, nil, w.in)
	check(err)
	described, err := w.admin.DescribeTopicConfigs(w.ctx, w.in)
	check(err)
	found := ""
	for _, config := range described[0].Configs {
		if config.Key == "retention.ms" {
			found = config.MaybeValue()
		}
	}
	topics, err := w.admin.ListTopics(w.ctx, w.in)
	check(err)
	tell("admin", map[string]any{
		"partitions": len(topics[w.in].Partitions),
		"retention":  found,
		"again":      fmt.Sprint(again[w.in].Err),
	})
}

func (w *work) produce() {
	client := w.client(kgo.DefaultProduceTopic(w.in), kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	defer client.Close()
	offsets := 0
	for i := 0; i < records; i++ {
		record := &kgo.Record{
			Key:     []byte(fmt.Sprint("k", i)),
			Value:   []byte(fmt.Sprint(i)),
			Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("v")}},
		}
		result, err := client.ProduceSync(w.ctx, record).First()
		check(err)
		if result.Offset >= 0 {
			offsets++
		}
	}
	ends, err := w.admin.ListEndOffsets(w.ctx, w.in)
	check(err)
	total := int64(0)
	ends.Each(func(end kadm.ListedOffset) { total += end.Offset })
	tell("produce", map[string]any{"acknowledged": offsets, "end": total})
}

// Two members with the cooperative protocol: the second one takes over while the first one goes on.
func (w *work) consumeTogether() {
	join := func() *kgo.Client {
		return w.client(
			kgo.ConsumerGroup(w.group),
			kgo.ConsumeTopics(w.in),
			kgo.Balancers(kgo.CooperativeStickyBalancer()),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.HeartbeatInterval(200*time.Millisecond),
			kgo.DisableAutoCommit(),
		)
	}
	first := join()
	seen := map[string]int{}
	w.poll(first, seen, func() bool { return len(seen) == records })
	check(first.CommitUncommittedOffsets(w.ctx))
	second := join()
	w.poll(second, seen, func() bool { return w.settled(2) && w.poked(first, seen) })
	described, err := w.admin.DescribeGroups(w.ctx, w.group)
	check(err)
	assigned := map[int]int{}
	for _, member := range described[w.group].Members {
		if assignment, ok := member.Assigned.AsConsumer(); ok {
			for _, topic := range assignment.Topics {
				assigned[len(topic.Partitions)]++
			}
		}
	}
	committed, err := w.admin.FetchOffsets(w.ctx, w.group)
	check(err)
	total := int64(0)
	committed.Each(func(offset kadm.OffsetResponse) { total += offset.At })
	protocol := described[w.group].Protocol
	first.Close()
	second.Close()
	most := 0
	for _, times := range seen {
		if times > most {
			most = times
		}
	}
	tell("group", map[string]any{
		"seen": len(seen), "most": most, "halves": assigned[partitions/2], "committed": total, "protocol": protocol,
	})
}

func (w *work) poll(client *kgo.Client, seen map[string]int, done func() bool) {
	for !done() {
		check(w.ctx.Err())
		ctx, cancel := context.WithTimeout(w.ctx, 100*time.Millisecond)
		fetches := client.PollFetches(ctx)
		cancel()
		for _, failed := range fetches.Errors() {
			if !errors.Is(failed.Err, context.DeadlineExceeded) {
				check(failed.Err)
			}
		}
		fetches.EachRecord(func(record *kgo.Record) { seen[string(record.Value)]++ })
	}
}

// The first member polls as well: it has to give up partitions before the second one gets them.
func (w *work) poked(client *kgo.Client, seen map[string]int) bool {
	polled := false
	w.poll(client, seen, func() bool { done := polled; polled = true; return done })
	return true
}

func (w *work) settled(members int) bool {
	described, err := w.admin.DescribeGroups(w.ctx, w.group)
	check(err)
	group := described[w.group]
	if group.State != "Stable" || len(group.Members) != members {
		return false
	}
	for _, member := range group.Members {
		assignment, ok := member.Assigned.AsConsumer()
		if !ok || len(assignment.Topics) == 0 || len(assignment.Topics[0].Partitions) != partitions/members {
			return false
		}
	}
	return true
}

// Consume, transform, produce: the first transaction is aborted, so that everything is read and written again.
func (w *work) transact() {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(w.servers),
		kgo.TransactionalID(w.group+"-transactions"),
		kgo.ConsumerGroup(w.group+"-transactions"),
		kgo.ConsumeTopics(w.in),
		kgo.DefaultProduceTopic(w.out),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.HeartbeatInterval(200*time.Millisecond),
	)
	check(err)
	written, aborted := 0, 0
	for written < records {
		fetches := session.PollFetches(w.ctx)
		check(fetches.Err())
		check(session.Begin())
		count := 0
		fetches.EachRecord(func(record *kgo.Record) {
			count++
			session.Produce(w.ctx, kgo.KeySliceRecord(record.Key, record.Value), func(_ *kgo.Record, err error) { check(err) })
		})
		check(session.Client().Flush(w.ctx))
		try := kgo.TransactionEndTry(aborted > 0)
		committed, err := session.End(w.ctx, try)
		check(err)
		if committed {
			written += count
		} else {
			aborted++
		}
	}
	session.Close()
	counts := map[string]int{}
	for name, level := range map[string]kgo.IsolationLevel{
		"committed": kgo.ReadCommitted(), "uncommitted": kgo.ReadUncommitted(),
	} {
		seen := map[string]int{}
		reader := w.client(
			kgo.ConsumeTopics(w.out),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.FetchIsolationLevel(level),
		)
		w.poll(reader, seen, func() bool { return len(seen) == records })
		reader.Close()
		for _, times := range seen {
			counts[name] += times
		}
	}
	tell("transactions", map[string]any{
		"aborted": aborted > 0, "committed": counts["committed"], "more": counts["uncommitted"] > counts["committed"],
	})
}

// One line for each partition, with the member that has it.
func (w *work) lag() {
	lags, err := w.admin.Lag(w.ctx, w.group)
	check(err)
	described := lags[w.group]
	check(described.Error())
	for _, lag := range described.Lag.Sorted() {
		check(lag.Err)
		member := ""
		if lag.Member != nil {
			member = lag.Member.ClientID
		}
		tell("lag", map[string]any{
			"state": described.State, "protocol": described.Protocol, "member": member,
			"topic": lag.Topic, "partition": lag.Partition, "committed": lag.Commit.At, "lag": lag.Lag,
		})
	}
	tell("total", map[string]any{"lag": described.Lag.Total()})
	w.admin.Close()
}

func (w *work) cleanUp() {
	deletedGroups, err := w.admin.DeleteGroups(w.ctx, w.group)
	check(err)
	check(deletedGroups[w.group].Err)
	deleted, err := w.admin.DeleteTopics(w.ctx, w.in, w.out)
	check(err)
	for _, topic := range deleted {
		check(topic.Err)
	}
	tell("deleted", map[string]any{"topics": len(deleted)})
	w.admin.Close()
}
