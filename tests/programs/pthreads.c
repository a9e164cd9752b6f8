/*
 * POSIX threads as a C library makes them of a kernel's threads, futexes and signals: mutexes,
 * conditions, barriers, thread-local storage, cancellation. Prints the same on every kernel that has
 * them right. Build: cc -static -O2 -pthread.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 64, ROUNDS = 500 };

#define CHECK(what)                                                           \
    do {                                                                      \
        if (!(what)) {                                                        \
            printf("FAILED: line %d: %s\n", __LINE__, #what);                 \
            exit(1);                                                          \
        }                                                                     \
    } while (0)

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static __thread long local;
static long counted, turn;
static atomic_long destroyed, initialized;

static void initialize(void) { initialized++; }
static void destroy(void *value) { destroyed += (long)value; }

static void *count(void *argument) {
    long me = (long)argument;
    pthread_once(&once, initialize);
    pthread_setspecific(key, (void *)me);
    for (int round = 0; round < ROUNDS; round++) {
        pthread_mutex_lock(&mutex);
        counted++;
        pthread_mutex_unlock(&mutex);
        local += me;
    }
    pthread_barrier_wait(&barrier);
    CHECK(local == me * ROUNDS);
    /* One after the other, by number. */
    pthread_mutex_lock(&mutex);
    while (turn != me)
        pthread_cond_wait(&condition, &mutex);
    turn++;
    pthread_cond_broadcast(&condition);
    pthread_mutex_unlock(&mutex);
    return (void *)(me * me);
}

static void threads(void) {
    pthread_t thread[THREADS];
    long sum = 0, expected = 0;
    pthread_barrier_init(&barrier, NULL, THREADS);
    pthread_key_create(&key, destroy);
    for (long i = 0; i < THREADS; i++)
        CHECK(pthread_create(&thread[i], NULL, count, (void *)i) == 0);
    for (long i = 0; i < THREADS; i++) {
        void *result;
        CHECK(pthread_join(thread[i], &result) == 0);
        sum += (long)result;
        expected += i * i;
    }
    printf("threads: %ld counted, turns %ld, sums %s, once %ld, destroyed %ld\n", counted, turn,
           sum == expected ? "right" : "wrong", initialized, destroyed);
}

static void clean(void *flag) { ++*(int *)flag; }

static void *sleeps(void *flag) {
    pthread_cleanup_push(clean, flag);
    for (;;)
        pause();
    pthread_cleanup_pop(0);
    return NULL;
}

static void *spins(void *flag) {
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    pthread_cleanup_push(clean, flag);
    for (;;)
        ;
    pthread_cleanup_pop(0);
    return NULL;
}

static void *waits(void *flag) {
    pthread_mutex_lock(&mutex);
    pthread_cleanup_push((void (*)(void *))pthread_mutex_unlock, &mutex);
    for (;;)
        pthread_cond_wait(&condition, &mutex);
    pthread_cleanup_pop(0);
    return flag;
}

static void cancellation(void) {
    int cleaned = 0;
    void *(*bodies[])(void *) = {sleeps, spins, waits};
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        void *result;
        struct timespec moment = {0, 20000000};
        CHECK(pthread_create(&thread, NULL, bodies[i], &cleaned) == 0);
        nanosleep(&moment, NULL);
        CHECK(pthread_cancel(thread) == 0);
        CHECK(pthread_join(thread, &result) == 0);
        CHECK(result == PTHREAD_CANCELED);
    }
    CHECK(pthread_mutex_trylock(&mutex) == 0);
    pthread_mutex_unlock(&mutex);
    printf("cancellation: %d cleaned up, the mutex is free\n", cleaned);
}

static sem_t semaphore;
static atomic_int readers, most, passed;

static void *reads(void *argument) {
    (void)argument;
    for (int round = 0; round < 50; round++) {
        pthread_rwlock_rdlock(&rwlock);
        int now = ++readers;
        if (now > most)
            most = now;
        --readers;
        pthread_rwlock_unlock(&rwlock);
        pthread_rwlock_wrlock(&rwlock);
        CHECK(readers == 0);
        pthread_rwlock_unlock(&rwlock);
    }
    sem_wait(&semaphore);
    passed++;
    sem_post(&semaphore);
    return NULL;
}

static void others(void) {
    pthread_t thread[8];
    sem_init(&semaphore, 0, 2);
    for (int i = 0; i < 8; i++)
        CHECK(pthread_create(&thread[i], NULL, reads, NULL) == 0);
    for (int i = 0; i < 8; i++)
        pthread_join(thread[i], NULL);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 10000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&mutex);
    int late = pthread_cond_timedwait(&condition, &mutex, &until);
    pthread_mutex_unlock(&mutex);
    pthread_mutexattr_t attributes;
    pthread_mutex_t recursive;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&recursive, &attributes);
    pthread_mutex_lock(&recursive);
    int again = pthread_mutex_lock(&recursive);
    printf("others: %d passed, late %s, again %s\n", passed, strerror(late), strerror(again));
}

static atomic_int handled;
static pthread_t handler_thread;
static sigjmp_buf back;
static volatile long fault_at, fault_code;

static void handle(int number, siginfo_t *info, void *context) {
    (void)context;
    handled += number == SIGUSR1 && info->si_code == SI_TKILL;
    handler_thread = pthread_self();
}

static void on_fault(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)context;
    fault_at = (long)info->si_addr;
    fault_code = info->si_code;
    siglongjmp(back, 1);
}

static void *held_back(void *argument) {
    sigset_t set;
    siginfo_t info;
    (void)argument;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 1);
    CHECK(sigwaitinfo(&set, &info) == SIGRTMIN + 1);
    return (void *)(long)info.si_value.sival_int;
}

static void signals(void) {
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &action, NULL);
    pthread_kill(pthread_self(), SIGUSR1);
    CHECK(handled == 1 && pthread_equal(handler_thread, pthread_self()));
    /* To a thread that waits for it while all hold it back, in order, with values. */
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    pthread_t thread;
    void *result;
    pthread_create(&thread, NULL, held_back, NULL);
    sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = 42});
    pthread_join(thread, &result);
    /* On a stack of its own, at a fault of the program's. */
    stack_t stack = {.ss_sp = malloc(SIGSTKSZ * 4), .ss_size = SIGSTKSZ * 4};
    sigaltstack(&stack, NULL);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, NULL);
    char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int faults = 0;
    if (sigsetjmp(back, 1) == 0)
        *(volatile char *)(page + 7) = 1;
    else
        faults++;
    CHECK(fault_at == (long)page + 7 && fault_code == SEGV_ACCERR);
    munmap(page, 4096);
    if (sigsetjmp(back, 1) == 0)
        *(volatile char *)page = 1;
    else
        faults++;
    CHECK(fault_at == (long)page && fault_code == SEGV_MAPERR);
    printf("signals: value %ld, %d faults handled\n", (long)result, faults);
}

static void on_child(int number) { (void)number; }

static void processes(void) {
    int fd[2], status;
    char byte;
    /* Held back, and waited for, though nothing is done about it. */
    sigset_t set, before;
    siginfo_t info;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &set, &before);
    fflush(stdout);
    pid_t first = fork();
    if (first == 0)
        _exit(3);
    CHECK(sigwaitinfo(&set, &info) == SIGCHLD);
    CHECK(info.si_pid == first && info.si_code == CLD_EXITED && info.si_status == 3);
    CHECK(waitpid(first, &status, 0) == first && WEXITSTATUS(status) == 3);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    /* Stopped and told to go on, over and over: it never stays stopped. */
    pid_t stops = fork();
    if (stops == 0)
        for (;;)
            pause();
    for (int i = 0; i < 200; i++) {
        kill(stops, SIGTSTP);
        kill(stops, SIGCONT);
    }
    kill(stops, SIGTERM);
    CHECK(waitpid(stops, &status, 0) == stops && WTERMSIG(status) == SIGTERM);
    signal(SIGCHLD, on_child);
    CHECK(pipe(fd) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(fd[0]);
        CHECK(write(fd[1], "x", 1) == 1);
        abort();
    }
    close(fd[1]);
    ssize_t got;
    do
        got = read(fd[0], &byte, 1);
    while (got < 0 && errno == EINTR);
    CHECK(got == 1 && byte == 'x');
    CHECK(waitpid(child, &status, 0) == child);
    printf("processes: the child %s\n", WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "exited");
    signal(SIGPIPE, SIG_IGN);
    close(fd[0]);
    CHECK(pipe(fd) == 0 && close(fd[0]) == 0);
    CHECK(write(fd[1], "x", 1) == -1 && errno == EPIPE);
}

static double vectors(double x) {
    double sum = 0;
    for (int i = 1; i < 1000; i++)
        sum += x / i;
    return sum;
}

static void *registers(void *argument) {
    double first = vectors(*(double *)argument);
    for (int round = 0; round < 200; round++) {
        CHECK(vectors(*(double *)argument) == first);
        if (round % 20 == 0)
            sched_yield();
    }
    return NULL;
}

static void keeps_registers(void) {
    pthread_t thread[16];
    double value[16];
    for (int i = 0; i < 16; i++) {
        value[i] = i + 0.5;
        pthread_create(&thread[i], NULL, registers, &value[i]);
    }
    for (int i = 0; i < 16; i++)
        pthread_join(thread[i], NULL);
    printf("registers: kept, %.6f\n", vectors(1));
}

int main(void) {
    threads();
    cancellation();
    others();
    signals();
    processes();
    keeps_registers();
    puts("done");
    return 0;
}
