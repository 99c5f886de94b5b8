/* Counters of the whole machine: CPU by core, memory, disks, network, pressure. */
#ifndef JUMPER_NODE_H
#define JUMPER_NODE_H

#include "procfile.h"

enum node_column {
    NODE_CPU, NODE_USER, NODE_SYSTEM, NODE_IOWAIT, NODE_MEMORY, NODE_SWAP, NODE_READ, NODE_WRITE, NODE_READS,
    NODE_WRITES, NODE_SENT, NODE_RECEIVED, NODE_PACKETS_SENT, NODE_PACKETS_RECEIVED, NODE_CPU_PRESSURE,
    NODE_MEMORY_PRESSURE, NODE_IO_PRESSURE, NODE_COLUMNS
};
enum { MOST_CORES = 4096 };

struct node {
    int64_t values[NODE_COLUMNS];
    int64_t *cores; /* busy ns of core i; UNKNOWN where it is offline */
    int core_count;
    int64_t tick_ns;
};

bool node_open(struct node *node, int core_count);
void node_close(struct node *node);
void node_read(struct node *node, struct procfs *fs);

/* What reading is made of, for tests with texts of their own. */
void node_parse_cpu(struct node *node, const char *text, size_t size);
void node_parse_memory(struct node *node, const char *text, size_t size);
void node_parse_disks(struct node *node, const char *text, size_t size);
void node_parse_network(struct node *node, const char *text, size_t size);

#endif
