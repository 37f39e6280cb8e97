/* Frames as clients send them, and what becomes of them on a bad wire: for frame_test.c and net_test.c. Not thread-safe. */
#ifndef RMQ_TEST_FRAMES_H
#define RMQ_TEST_FRAMES_H
#include <string.h>
#include "../include/rmq_bytes.h"

enum { MOST = 4096 };

static const char *const headers[] = {
    /* Java 4.9.8 and 5.3.3 */
    "{\"code\":310,\"extFields\":{\"a\":\"PG\",\"b\":\"T\",\"c\":\"TBW102\",\"d\":\"4\",\"e\":\"3\",\"f\":\"0"
    "\",\"g\":\"1764067200000\",\"h\":"
    "\"0\",\"i\":\"UNIQ_KEY\\u00017F0000010\\u0002WAIT\\u0001true\\u0002TAGS\\u0001TagA\",\"j\":\"0\",\"k\":\""
    "false\",\"m\":\"false\",\"n\":"
    "\"broker-a\"},\"flag\":0,\"language\":\"JAVA\",\"opaque\":6,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":409}",
    "{\"code\":11,\"extFields\":{\"queueId\":\"1\",\"maxMsgNums\":\"32\",\"sysFlag\":\"2\",\"commitOffset\":\""
    "0\",\"queueOffset\":\"7\","
    "\"consumerGroup\":\"G\",\"topic\":\"T\",\"suspendTimeoutMillis\":\"15000\",\"subVersion\":\"1764067200000"
    "\",\"expressionType\":\"TAG\","
    "\"maxMsgBytes\":\"-1\",\"bname\":\"b\",\"ns\":null,\"lo\":null},\"flag\":0,\"language\":\"JAVA\",\"opaque"
    "\":8,\"version\":479}",
    "{\"code\":34,\"flag\":0,\"language\":\"JAVA\",\"opaque\":2,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":409}",
    /* C++: bare numbers and other fields */
    "{\"code\":10,\"extFields\":{\"AccessKey\":\"\",\"OnsChannel\":\"ALIYUN\",\"Signature\":\"x=\",\"batch\":"
    "\"0\",\"bornTimestamp\":"
    "1764067200000,\"defaultTopic\":\"TBW102\",\"defaultTopicQueueNums\":4,\"flag\":0,\"producerGroup\":\"PG\""
    ",\"properties\":"
    "\"TAGS\\u0001a\\u0002\",\"queueId\":0,\"reconsumeTimes\":0,\"sysFlag\":0,\"topic\":\"T\",\"unitMode\":\"0"
    "\"},\"flag\":0,\"language\":"
    "\"CPP\",\"opaque\":3,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":63}\n",
    /* Go, and every kind of value under keys that nobody knows */
    "{ \"code\" : 105 ,\"language\":\"GO\",\"version\":317,\"opaque\":-1,\"flag\":0,\"remark\":\"a\\\"\\\\\\/"
    "\\b\\f\\n\\r\\t\\u00e9\","
    "\"extFields\":{\"topic\":\"T\\ud83d\\ude00\\ud83d \xc3\xa9\"},\"x\":[1,-2.5e+3,true,false,null,{\"y\":[]}"
    ",{}],\"z\":{\"a\":\"b\"}}",
    /* a batch of Java, a question for an offset of C++, a commit of one of Java */
    "{\"code\":320,\"extFields\":{\"a\":\"PG\",\"b\":\"T\",\"c\":\"TBW102\",\"d\":\"4\",\"e\":\"3\",\"f\":\"0"
    "\",\"g\":\"1764067200000\",\"h\":\"0\",\"i\":\"WAIT\\u0001true\",\"j\":\"0\",\"k\":\"false\",\"m\":\"true\"},"
    "\"flag\":0,\"language\":\"JAVA\",\"opaque\":9,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":479}",
    "{\"code\":14,\"extFields\":{\"consumerGroup\":\"G\",\"queueId\":2,\"topic\":\"T\",\"setZeroIfNotFound\":false},"
    "\"flag\":0,\"language\":\"CPP\",\"opaque\":4,\"version\":63}",
    "{\"code\":15,\"extFields\":{\"commitOffset\":\"1764067200000\",\"consumerGroup\":\"G\",\"queueId\":\"2\",\"topic\":\"T\"},"
    "\"flag\":2,\"language\":\"JAVA\",\"opaque\":5,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":409}",
};
enum { HEADERS = sizeof headers / sizeof *headers };

static uint64_t seed = 0x9E3779B97F4A7C15;
static uint32_t random32(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 32);
}

static int32_t json_frame(unsigned char *to, const char *header, int32_t body) {
    int32_t n = (int32_t)strlen(header);
    rmq_put32(to, 4 + n + body);
    rmq_put32(to + 4, n);
    memcpy(to + 8, header, (size_t)n);
    memset(to + 8 + n, 'b', (size_t)body);
    return 8 + n + body;
}

static size_t mutated(unsigned char *bytes, size_t n) {
    static const char odd[] = "\"\\{}[]:,u0-+.eE\0\x01\xff\xc3\x80\x7f ntf";
    for (uint32_t k = 1 + random32() % 4; k > 0; k--) {
        size_t at = random32() % n;
        switch (random32() % 6) {
        case 0: bytes[at] = (unsigned char)random32(); break;
        case 1: bytes[at] = (unsigned char)odd[random32() % (sizeof odd - 1)]; break;
        case 2: bytes[at] ^= (unsigned char)(1u << random32() % 8); break;
        case 3: n = at > 8 ? at : n; break;
        case 4:
            if (n < MOST / 2) {
                memmove(bytes + at + 1, bytes + at, n - at);
                n++;
            }
            break;
        default: rmq_put32(bytes + (at < n - 4 && n > 8 ? at : 0), (int32_t)(random32() >> random32() % 32)); break;
        }
    }
    if (random32() % 4 && n > 8) {      /* mostly the lengths are true, so that the header is looked at */
        rmq_put32(bytes, (int32_t)n - 4);
        if (random32() % 2) rmq_put32(bytes + 4, (int32_t)((uint32_t)bytes[4] << 24 | ((uint32_t)n - 8)));
    }
    return n;
}
#endif
