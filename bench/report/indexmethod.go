package main

const indexMethod = "" + `
crtc is ConcurrentRadixTreeCompressed of the crate dynamo-kv-router 1.6.1 behind its ThreadPoolIndexer with two event
threads, radix is its RadixTree for a single thread; both are called by the program in ` + "`bench/peers/kv-router`" + `. Ours is
` + "`indexer/exact`" + ` through the call that an ingress makes, ` + "`Apply`" + ` with one event. All read the same plan from a file and are
measured in turns: a round of ours, of crtc, of radix, then the next round, each in a process of its own. A round in which
they do not find the same, in the full index and at the end, ends the benchmark: how many workers have some of a prompt,
and how many blocks of it those have.

**The plan.** max(4, 4096 / depth) families of prompts have depth/2 blocks in common. Each worker takes prompts of a random
family with depth/2 blocks of its own until it holds its blocks; what it has is not told again. The workers' events come in
turns. A block has 16 tokens. Prompts that are asked for are stored ones at full depth, of all workers.

**What is timed.** CPU time of the whole process, our garbage collector and the crate's handing over to its event threads
included; of a find that of its thread; "on the clock" is wall time. All get the tokens of what is stored, as engines send
them, and hash them with the rest: ours within ` + "`Apply`" + `, the crate's by a call of its ` + "`compute_block_hash_for_seq`" + ` an event; the
rest of the crate's events is made before. What hashing takes of it is measured apart as well. What our child process is fed
with lies outside of its heap, where the collector does not look and which does not put a collection off. CPU time and ratios hold beside other work better than times on the clock and
the longest pauses do: time that the scheduler gives to others in the middle of a find is in its pause, and where other
programs are at work that can be tens of milliseconds, for a thread that does nothing as well. Ratios are medians of the rounds' ratios; below 1 ours takes less.

| row | what is done |
|---|---|
| store | the full index is made; 1 or 16 blocks an event at most. Ours by one writer, crtc's by its two threads |
| store by two writers | each has half of the workers |
| remove | the prompts' own halves go, the tail first: of 16 an event three in four, the fourth beside a reader before |
| find | who has a prompt, alone |
| find, remove beside | a reader without pause beside those removals; the writer's time is the process's without that of the reader's thread |
| churn | in the full index each prompt's own half gives way to a new one, in events of 16; a reader asks without pause |
| longest pause | the longest time of one find on the clock. With two event threads, what hands over and the reader, crtc has four threads |
| clear | one worker's ` + "`Cleared`" + ` event: mean of 8 workers with all their blocks, or of half of a smaller fleet, after the churn; then as many more beside a reader |
| bytes a block | for each block of a worker, after the stores: ours heap in use after a collection less that before (HeapInuse), the crate's bytes given out by the allocator less those before (mallinfo2) |

After each 4,096 events crtc's queue is waited for, so that its room is not counted as the index's.
`
