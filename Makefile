# Build of blinkfs.  Two commands matter: `make run` and `make test`; `make help` lists the rest.
#
#   make                 build/blinkfs, build/mkfs.blinkfs, build/fsck.blinkfs
#   make SAN=1 test      the same under AddressSanitizer and UBSan, in build/san
#   make TSAN=1 test     the race programs under ThreadSanitizer, in build/tsan
#   make CC=clang BUILD=build/clang
#   make LATCH=pthread   latches of pthread_rwlock_t (timed: see make bench-blink); ALLOC=jemalloc or mimalloc: another
#                        allocator (libjemalloc-dev, libmimalloc-dev); see make bench-latch
#
# Layers, each an archive of the folders below it; an arrow never runs back up (make lint):
#
#   libblink.a  engine/base engine/dev log engine
#   libcore.a   fs (without fs/server)
#   libserver.a fs/server, but its main: for the tests of it
#   libfsck.a   fsck, but its main: what blinkfs dump, fsck.blinkfs and tests share
#   libmkfs.a   mkfs, but its main
#
# A source file is found by its place; nothing has to be added here for a new one.

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc)
endif

ifdef SAN
VARIANT := san
SANITIZE := -g1 -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
endif
ifdef TSAN
VARIANT := tsan
SANITIZE := -g1 -fsanitize=thread -fno-omit-frame-pointer
endif

# Lines that tests run, counted: make cov.  Threads count into the same words.  What gcc
# guesses of uninitialised variables is right at -O2 only.
ifdef COV
VARIANT := cov
OPTIMIZE ?= -O1 -g1
SANITIZE := --coverage -fprofile-update=atomic -Wno-maybe-uninitialized
endif

# Fuzzers for libFuzzer, which wants clang: make fuzz.
ifdef FUZZ
VARIANT := fuzz
SANITIZE := -g1 -fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=undefined \
	-fno-omit-frame-pointer -DBLINKFS_LIBFUZZER
endif

# What is compared in make bench-latch; other builds have their own folders.
LATCH ?= atomic
ALLOC ?= system
ifneq ($(LATCH),atomic)
VARIANT := $(VARIANT)$(LATCH)
LATCH_CFLAGS := $(if $(filter timed,$(LATCH)),-DLATCH_TIMED,-DLATCH_PTHREAD)
endif
ifneq ($(ALLOC),system)
VARIANT := $(VARIANT)$(ALLOC)
ALLOC_LIBS := -l$(ALLOC)
endif

BUILD ?= build$(if $(VARIANT),/$(VARIANT))
PREFIX ?= /usr/local
VERSION := 0.1

ifeq ($(origin CC),default)
CC := gcc
endif
AR := ar
PKG_CONFIG ?= pkg-config

# V=1 shows the commands.
Q = $(if $(V),,@echo '  $(notdir $@)';)
OPTIMIZE ?= -O2 -g
WARNINGS := -Wall -Wextra -Werror
CFLAGS_ALL = -std=c11 -D_GNU_SOURCE -DBLINKFS_VERSION='"$(VERSION)"' -I. $(WARNINGS) $(OPTIMIZE) \
	-pthread $(SANITIZE) $(LATCH_CFLAGS) $(CFLAGS)
LDFLAGS_ALL = -pthread $(SANITIZE) $(LDFLAGS)

# Headers of a package only for the files that may include them (see lint).
ENGINE_PACKAGES := liburing libpmem libisal libxxhash
FUSE_PACKAGES := fuse3 libcjson
MKFS_PACKAGES := blkid uuid
TEST_PACKAGES := criterion
pkg = $(shell $(PKG_CONFIG) $(1) $(2))

# ---------------------------------------------------------------- sources

BLINK_SOURCES := $(wildcard engine/base/*.c engine/dev/*.c log/*.c engine/*.c)
CORE_SOURCES := $(wildcard fs/*.c fs/core/*.c)
SERVER_SOURCES := $(wildcard fs/server/*.c)
FSCK_SOURCES := $(wildcard fsck/*.c)
MKFS_SOURCES := $(wildcard mkfs/*.c)

TEST_KINDS := unit race model crash fault fuzz sim
TEST_SOURCES := $(wildcard $(TEST_KINDS:%=tests/%/*.c))
# Beside the programs, a folder may hold helpers; those of several folders lie in tests/lib.
TEST_HELPERS := $(filter tests/%,$(shell grep -LE '^[[:space:]]*(int main|(Parameterized)?Test)\>' \
	$(TEST_SOURCES) /dev/null))
TEST_LIB_SOURCES := $(wildcard tests/lib/*.c) $(TEST_HELPERS)
UNIT_SOURCES := $(filter-out $(TEST_HELPERS),$(filter tests/unit/%,$(TEST_SOURCES)))
PLAIN_SOURCES := $(filter-out $(TEST_HELPERS) $(UNIT_SOURCES),$(TEST_SOURCES))
# Of the server's insides: these are linked with it and with libfuse.
SERVER_TEST_SOURCES := $(shell grep -l '^.include "fs/server/' $(TEST_SOURCES) /dev/null)
BENCH_SOURCES := $(wildcard bench/*.c)
MOUNT_SCRIPTS := $(wildcard tests/mount/test_*.sh)
MOUNT_TOOL_SOURCES := $(wildcard tests/mount/*.c)

objects_of = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
programs_of = $(patsubst %.c,$(BUILD)/%,$(1))
kind = $(filter tests/$(1)/%,$(PLAIN_SOURCES))

ARCHIVES := $(BUILD)/libmkfs.a $(BUILD)/libfsck.a $(BUILD)/libcore.a $(BUILD)/libblink.a
PROGRAMS := $(BUILD)/blinkfs $(BUILD)/mkfs.blinkfs $(BUILD)/fsck.blinkfs
UNIT_PROGRAMS := $(call programs_of,$(UNIT_SOURCES))
PLAIN_PROGRAMS := $(call programs_of,$(PLAIN_SOURCES))
MOUNT_TOOLS := $(call programs_of,$(MOUNT_TOOL_SOURCES))
SERVER_TEST_PROGRAMS := $(call programs_of,$(SERVER_TEST_SOURCES))
BENCH_PROGRAMS := $(call programs_of,$(BENCH_SOURCES))

ALL_SOURCES := $(BLINK_SOURCES) $(CORE_SOURCES) $(SERVER_SOURCES) $(FSCK_SOURCES) $(MKFS_SOURCES) \
	$(TEST_LIB_SOURCES) $(UNIT_SOURCES) $(PLAIN_SOURCES) $(MOUNT_TOOL_SOURCES) $(BENCH_SOURCES)

# ------------------------------------------------------------------ build

.PHONY: all objects tests bench
all: $(PROGRAMS)
# Everything that compiles, linked or not.
objects: $(call objects_of,$(ALL_SOURCES))
tests: $(UNIT_PROGRAMS) $(PLAIN_PROGRAMS) $(MOUNT_TOOLS)
bench: $(BENCH_PROGRAMS)

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_ALL) $(PACKAGE_CFLAGS) -MMD -MP -c $< -o $@

$(call objects_of,$(SERVER_SOURCES) $(SERVER_TEST_SOURCES)): PACKAGE_CFLAGS = $(call pkg,--cflags,$(FUSE_PACKAGES))
$(call objects_of,$(MKFS_SOURCES)): PACKAGE_CFLAGS = $(call pkg,--cflags,$(MKFS_PACKAGES))

archive = $(Q)rm -f $@ && $(AR) rcs $@ $^
$(BUILD)/libblink.a: $(call objects_of,$(BLINK_SOURCES))
	$(archive)
$(BUILD)/libcore.a: $(call objects_of,$(CORE_SOURCES))
	$(archive)
$(BUILD)/libfsck.a: $(call objects_of,$(filter-out fsck/main.c,$(FSCK_SOURCES)))
	$(archive)
$(BUILD)/libserver.a: $(call objects_of,$(filter-out fs/server/main.c,$(SERVER_SOURCES)))
	$(archive)
$(BUILD)/libmkfs.a: $(call objects_of,$(filter-out mkfs/main.c,$(MKFS_SOURCES)))
	$(archive)
$(BUILD)/libtest.a: $(call objects_of,$(TEST_LIB_SOURCES))
	$(archive)

ENGINE_LIBS = $(call pkg,--libs,$(ENGINE_PACKAGES)) $(ALLOC_LIBS)
link = $(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^

$(BUILD)/blinkfs: $(BUILD)/obj/fs/server/main.o $(BUILD)/libserver.a $(BUILD)/libfsck.a \
		$(BUILD)/libcore.a $(BUILD)/libblink.a
	$(link) $(call pkg,--libs,$(FUSE_PACKAGES)) $(ENGINE_LIBS)
$(BUILD)/mkfs.blinkfs: $(BUILD)/obj/mkfs/main.o $(BUILD)/libmkfs.a $(BUILD)/libcore.a $(BUILD)/libblink.a
	$(link) $(call pkg,--libs,$(MKFS_PACKAGES)) $(ENGINE_LIBS)
$(BUILD)/fsck.blinkfs: $(BUILD)/obj/fsck/main.o $(BUILD)/libfsck.a $(BUILD)/libcore.a $(BUILD)/libblink.a
	$(link) $(ENGINE_LIBS)

TEST_ARCHIVES := $(BUILD)/libtest.a $(ARCHIVES)
$(filter-out $(SERVER_TEST_PROGRAMS),$(UNIT_PROGRAMS)): $(BUILD)/%: $(BUILD)/obj/%.o \
		$(TEST_ARCHIVES)
	@mkdir -p $(@D)
	$(link) $(call pkg,--libs,$(TEST_PACKAGES) $(MKFS_PACKAGES)) $(ENGINE_LIBS)
$(filter-out $(SERVER_TEST_PROGRAMS),$(PLAIN_PROGRAMS)) $(MOUNT_TOOLS) $(BENCH_PROGRAMS): \
		$(BUILD)/%: $(BUILD)/obj/%.o $(TEST_ARCHIVES)
	@mkdir -p $(@D)
	$(link) $(call pkg,--libs,$(MKFS_PACKAGES)) $(ENGINE_LIBS)
$(filter $(BUILD)/tests/unit/%,$(SERVER_TEST_PROGRAMS)): FRAMEWORK = $(TEST_PACKAGES)
$(SERVER_TEST_PROGRAMS): $(BUILD)/%: $(BUILD)/obj/%.o $(BUILD)/libserver.a $(TEST_ARCHIVES)
	@mkdir -p $(@D)
	$(link) $(call pkg,--libs,$(FRAMEWORK) $(FUSE_PACKAGES)) $(ENGINE_LIBS)

# Those that have an input; fuzz_flip tries everything by itself.
FUZZERS := $(filter-out %/fuzz_flip,$(call programs_of,$(call kind,fuzz)))
ifdef FUZZ
$(FUZZERS): SANITIZE += -fsanitize=fuzzer
endif

-include $(patsubst %.o,%.d,$(call objects_of,$(ALL_SOURCES)))

# ------------------------------------------------------------------ tests
# A program run without arguments is short (see tests/README.md); soak runs the
# same programs with a large TEST_SCALE.

.PHONY: test test-unit test-model test-race test-crash test-fault test-fuzz test-sim test-mount soak
.PHONY: sim sim-soak crash-all mutants
RUN_TESTS := BUILD=$(BUILD) TSAN=$(TSAN) tests/run.sh
UNIT_TESTS := $(UNIT_PROGRAMS)
MODEL_TESTS := $(call programs_of,$(call kind,model))
RACE_TESTS := $(call programs_of,$(call kind,race))
CRASH_TESTS := $(call programs_of,$(call kind,crash))
FAULT_TESTS := $(call programs_of,$(call kind,fault))
FUZZ_TESTS := $(call programs_of,$(call kind,fuzz))
SIM_TESTS := $(call programs_of,$(call kind,sim))

ifdef TSAN
TESTS := $(RACE_TESTS)
else ifdef SAN
TESTS := $(UNIT_TESTS) $(MODEL_TESTS) $(CRASH_TESTS) $(FAULT_TESTS) $(FUZZ_TESTS) $(SIM_TESTS) \
	$(MOUNT_SCRIPTS)
else
TESTS := $(UNIT_TESTS) $(MODEL_TESTS) $(RACE_TESTS) $(CRASH_TESTS) $(FAULT_TESTS) $(FUZZ_TESTS) \
	$(SIM_TESTS) $(MOUNT_SCRIPTS)
endif

test: $(if $(TSAN),,all $(MOUNT_TOOLS)) $(filter $(BUILD)/%,$(TESTS))
	@$(RUN_TESTS) $(TESTS)
test-unit: $(UNIT_TESTS)
	@$(RUN_TESTS) $^
test-model: $(MODEL_TESTS)
	@$(RUN_TESTS) $^
test-race: $(RACE_TESTS)
	@$(RUN_TESTS) $^
test-crash: $(CRASH_TESTS)
	@$(RUN_TESTS) $^
test-fault: $(FAULT_TESTS)
	@$(RUN_TESTS) $^
test-fuzz: $(FUZZ_TESTS)
	@$(RUN_TESTS) $^
test-sim: $(SIM_TESTS)
	@$(RUN_TESTS) $^
test-mount: all $(MOUNT_TOOLS)
	@$(RUN_TESTS) $(MOUNT_SCRIPTS)
# One run again: same seed, same run.  SIM_VERBOSE=1 says more.  sim-soak: one seed after the other.
SEED ?= 1
OPS ?= 20000
MINUTES ?= 10
sim: $(SIM_TESTS)
	@$(BUILD)/tests/sim/sim_core $(SEED) $(OPS)
sim-soak: $(SIM_TESTS)
	@$(BUILD)/tests/sim/sim_core -m $(MINUTES) $(SEED) $(OPS)
soak: all $(MOUNT_TOOLS) $(MODEL_TESTS) $(RACE_TESTS) $(CRASH_TESTS) $(FAULT_TESTS) $(FUZZ_TESTS) \
		$(SIM_TESTS)
	@TEST_SCALE=$${TEST_SCALE:-50} TEST_TIMEOUT=$${TEST_TIMEOUT:-14400} $(RUN_TESTS) \
		$(filter $(BUILD)/%,$(filter-out $(PROGRAMS) $(MOUNT_TOOLS),$^)) $(MOUNT_SCRIPTS)

# Coverage-guided, MINUTES each, two at a time; begins with inputs that the plain programs make.
.PHONY: fuzz fuzz-programs
MINUTES ?= 10
fuzz: $(FUZZERS)
	@$(MAKE) --no-print-directory FUZZ=1 CC="$(FUZZ_CC)" BUILD=$(BUILD)/fuzz fuzz-programs
	@tests/fuzz.sh $(BUILD) $(MINUTES) $(notdir $(FUZZERS))
FUZZ_CC ?= clang
fuzz-programs: $(FUZZERS)

# Which lines of the engine, the log and fsck the tests run: a table, and JSON.
.PHONY: cov cov-run
cov:
	@rm -rf $(BUILD)/cov/report
	@$(MAKE) --no-print-directory COV=1 BUILD=$(BUILD)/cov cov-run
cov-run: all $(MOUNT_TOOLS) $(filter $(BUILD)/%,$(TESTS))
	@tests/coverage.sh $(BUILD) $(TESTS)

# Workloads by the ten thousand, each cut everywhere; goes on from where it was interrupted.
# JOBS=2 processes, nice'd.  See tests/crash/explore.h.
JOBS ?= $(shell nproc)
crash-all: $(BUILD)/tests/crash/crash_explore
	@mkdir -p $(BUILD)/crash-all
	@for log in pwrite dsync mapped; do \
		nice $< --long --log $$log --jobs $(JOBS) \
			--progress $(BUILD)/crash-all/$$log || exit 1; \
	done

# Mechanisms switched off one at a time: the test that each names must fail.
mutants:
	@CC='$(CC)' BUILD=$(BUILD) tests/mutants/run.sh $(MUTANTS)

# --------------------------------------------------------- trying it out

.PHONY: run stop
run:
	@.ci/install
	@$(MAKE) --no-print-directory all
	@BUILD=$(BUILD) .ci/demo start
stop:
	@BUILD=$(BUILD) .ci/demo stop

# -------------------------------------------------------------- the rest

.PHONY: install format lint clean help
MAN_PAGES := $(wildcard fs/*.8 mkfs/*.8 fsck/*.8)
install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/sbin $(DESTDIR)$(PREFIX)/share/man/man8
	install -m 755 $(BUILD)/blinkfs $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(BUILD)/mkfs.blinkfs $(BUILD)/fsck.blinkfs $(DESTDIR)$(PREFIX)/sbin
	install -m 644 $(MAN_PAGES) $(DESTDIR)$(PREFIX)/share/man/man8

# Lines that differ from BASE: look at what it did before you keep it.
BASE ?= HEAD
format:
	git clang-format --force $(BASE) -- '*.c' '*.h'
lint:
	@tests/lint.sh

clean:
	rm -rf $(BUILD)

help:
	@echo 'make run          build, format ./blinkfs.img, mount it on ./mnt'
	@echo 'make stop         unmount it again'
	@echo 'make test         all tests, short (SAN=1: under ASan+UBSan, TSAN=1: races under TSan)'
	@echo 'make test-unit    one kind: unit, model, race, crash, fault, fuzz, sim, mount'
	@echo 'make soak         the same programs for hours (TEST_SCALE=50)'
	@echo 'make fuzz MINUTES=10   libFuzzer (clang): pages, images, superblocks, logs, backups'
	@echo 'make cov          which lines of engine, log and fsck the tests run (gcovr)'
	@echo 'make crash-all    power cuts in tens of thousands of workloads; goes on where it was'
	@echo 'make mutants      mechanisms switched off: does the test that should notice fail?'
	@echo 'make sim          one run of the simulation: SEED=, OPS=; sim-soak: seeds for MINUTES='
	@echo 'make all          the programs; objects: compile only; tests, bench: their programs'
	@echo 'make install      into DESTDIR, PREFIX (/usr/local)'
	@echo 'make lint         layer and static checks; format: clang-format on lines changed since BASE='
	@echo 'make bench-log    commits per second; bench-mount, bench-fio: through a mount'
	@echo 'make bench-blink  splits; bench-engines: beside others; bench-dirs: large directories'
	@echo 'make bench-data   contents beside ext4 and XFS; bench-overwrite: random overwrites'
	@echo 'make clean        removes BUILD (build; build/san; build/tsan)'

include bench/bench.mk
