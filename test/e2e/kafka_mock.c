/* kafka_mock.c: librdkafka's mock cluster as a process, for lib/brokers.py. Prints the list of
 * brokers, then obeys lines on standard input until it ends:
 *
 *   down          no broker answers any more       up          they do again
 *   refuse TOPIC  there is no such topic           topic NAME  made, with one partition
 *   fatal         the next produce request gets an error that no idempotent producer survives
 */
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <stdio.h>
#include <string.h>

enum { BROKERS = 3 };

int main(void)
{
    char why[200], line[300];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_t *handle = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof why);
    rd_kafka_mock_cluster_t *cluster = handle ? rd_kafka_mock_cluster_new(handle, BROKERS) : NULL;
    if (!cluster)
        return 2;
    printf("%s\n", rd_kafka_mock_cluster_bootstraps(cluster));
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        for (int id = 1; id <= BROKERS; id++) {
            if (strcmp(line, "down") == 0)
                rd_kafka_mock_broker_set_down(cluster, id);
            else if (strcmp(line, "up") == 0)
                rd_kafka_mock_broker_set_up(cluster, id);
        }
        if (strncmp(line, "refuse ", 7) == 0)
            rd_kafka_mock_topic_set_error(cluster, line + 7,
                                          RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
        else if (strncmp(line, "topic ", 6) == 0)
            rd_kafka_mock_topic_create(cluster, line + 6, 1, BROKERS);
        else if (strcmp(line, "fatal") == 0)
            rd_kafka_mock_push_request_errors(cluster, 0, 1,
                                              RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER);
        printf("done\n");
        fflush(stdout);
    }
    rd_kafka_mock_cluster_destroy(cluster);
    rd_kafka_destroy(handle);
    return 0;
}
