/* Beats and progresses until it is told to go silent: argv[1] is a fifo, each line of it one word. */
#include "interlock_worker.h"

int main(int count, char **arguments) {
    char word[32];
    unsigned long long done = 0;
    FILE *words = count > 1 ? fopen(arguments[1], "r") : NULL;
    if (!words) return 2;
    while (fscanf(words, "%31s", word) == 1) {
        if (!strcmp(word, "beat")) interlock_beat();
        if (!strcmp(word, "progress")) interlock_progress(++done);
        if (!strcmp(word, "status")) interlock_status("speaks C");
        if (!strcmp(word, "crash")) abort();
    }
    return 0;
}
