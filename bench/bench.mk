# Benchmarks.  Included by the top-level Makefile, which builds bench/*.c, a
# program each; those of several files lie in folders.  The floor server is the
# one that needs libfuse.

FLOOR_SOURCES := $(wildcard bench/floor/*.c)
$(call objects_of,$(FLOOR_SOURCES)): PACKAGE_CFLAGS = $(call pkg,--cflags,fuse3)
$(BUILD)/bench/floor: $(call objects_of,$(FLOOR_SOURCES))
	@mkdir -p $(@D)
	$(link) $(call pkg,--libs,fuse3)
objects: $(call objects_of,$(FLOOR_SOURCES))
bench: $(BUILD)/bench/floor
-include $(patsubst %.o,%.d,$(call objects_of,$(FLOOR_SOURCES)))

LOG_BENCH_SOURCES := $(wildcard bench/log/*.c)
$(BUILD)/bench/log_bench: $(call objects_of,$(LOG_BENCH_SOURCES)) $(BUILD)/libcore.a $(BUILD)/libblink.a
	@mkdir -p $(@D)
	$(link) $(ENGINE_LIBS)
objects: $(call objects_of,$(LOG_BENCH_SOURCES))
bench: $(BUILD)/bench/log_bench
-include $(patsubst %.o,%.d,$(call objects_of,$(LOG_BENCH_SOURCES)))

LOB_BENCH_SOURCES := $(wildcard bench/lob/*.c)
$(BUILD)/bench/lob_bench: $(call objects_of,$(LOB_BENCH_SOURCES)) $(BUILD)/libcore.a $(BUILD)/libblink.a
	@mkdir -p $(@D)
	$(link) $(ENGINE_LIBS)
objects: $(call objects_of,$(LOB_BENCH_SOURCES))
bench: $(BUILD)/bench/lob_bench
-include $(patsubst %.o,%.d,$(call objects_of,$(LOB_BENCH_SOURCES)))

BLINK_BENCH_SOURCES := $(wildcard bench/blink/*.c)
$(BUILD)/bench/blink_bench: $(call objects_of,$(BLINK_BENCH_SOURCES)) $(BUILD)/libblink.a
	@mkdir -p $(@D)
	$(link) $(ENGINE_LIBS) -lm
objects: $(call objects_of,$(BLINK_BENCH_SOURCES))
bench: $(BUILD)/bench/blink_bench
-include $(patsubst %.o,%.d,$(call objects_of,$(BLINK_BENCH_SOURCES)))

# bench/engines.sh says which ENGINES there are; without it only ours is built.
ENGINES_BENCH_SOURCES := $(wildcard bench/engines/*.c)
ENGINES_LIBS = $(patsubst %,-l%,$(subst BDB,db,$(subst LMDB,lmdb,$(subst ROCKSDB,rocksdb,\
	$(subst SQLITE,sqlite3,$(ENGINES))))))
$(call objects_of,$(ENGINES_BENCH_SOURCES)): PACKAGE_CFLAGS = $(patsubst %,-DHAVE_%,$(ENGINES))
# Built anew when other engines are there than the last time.
ifneq ($(strip $(ENGINES)),)
$(call objects_of,$(ENGINES_BENCH_SOURCES)): $(BUILD)/bench/engines.list
$(BUILD)/bench/engines.list: FORCE
	@mkdir -p $(@D)
	@echo '$(ENGINES)' | cmp -s - $@ || echo '$(ENGINES)' >$@
.PHONY: FORCE
endif
$(BUILD)/bench/engines_bench: $(call objects_of,$(ENGINES_BENCH_SOURCES)) $(BUILD)/libblink.a
	@mkdir -p $(@D)
	$(link) $(ENGINE_LIBS) $(ENGINES_LIBS)
-include $(patsubst %.o,%.d,$(call objects_of,$(ENGINES_BENCH_SOURCES)))

.PHONY: bench-log bench-mount bench-fio bench-recovery bench-stall bench-latch bench-flushes
.PHONY: bench-backup bench-data bench-overwrite bench-open bench-discard
.PHONY: bench-lob bench-blink bench-engines bench-dirs
# Commits per second of the redo log, beside programs without one; ROUNDS=7.
# Results: $(BUILD)/bench/log.json.
bench-log: $(BUILD)/bench/log_bench
	@$< $(BUILD)/bench
# Flushes for each durable file, beside ext4 and XFS: $(BUILD)/bench/flushes.json.
bench-flushes: all $(BUILD)/bench/meta
	@BUILD=$(BUILD) bench/flushes.sh
# Large values with and without each of the measures for them; ROUNDS=5.
# Results: $(BUILD)/bench/lob.json.
bench-lob: $(BUILD)/bench/lob_bench
	@$< $(BUILD)/bench
# Beside ext4 and the floor; ROUNDS=5. Results: $(BUILD)/bench/mount.json.
bench-mount: all $(addprefix $(BUILD)/bench/,floor meta stream report)
	@BUILD=$(BUILD) bench/mount.sh
# File contents, beside ext4 and XFS; ROUNDS=3.  Results: $(BUILD)/bench/data.json.
bench-data: all $(addprefix $(BUILD)/bench/,stream report)
	@BUILD=$(BUILD) bench/data.sh
# Random overwrites of a large file; FILE_MIB=1024 WRITES=1000000: $(BUILD)/bench/overwrite.json.
bench-overwrite: $(BUILD)/bench/overwrite
	@$< $(BUILD)/bench
# Opening volumes of 10 GiB, 1 TiB and 16000 GiB, sparse: $(BUILD)/bench/open.json.
bench-open: $(BUILD)/bench/open_time
	@$< $(BUILD)/bench
# What -o discard costs; ROUNDS=5: $(BUILD)/bench/discard.json.
bench-discard: all $(BUILD)/bench/meta
	@BUILD=$(BUILD) bench/discard.sh
# fio's jobs, verifying, on a fresh volume.
bench-fio: all
	@BUILD=$(BUILD) bench/fio.sh

# Replay against reading the same log, and a mount after kill -9: $(BUILD)/bench/recovery.json.
bench-recovery: all $(addprefix $(BUILD)/bench/,recovery_bench meta)
	@BUILD=$(BUILD) bench/recovery.sh
# Ten laps of the log without a stall: $(BUILD)/bench/stall.json.
bench-stall: $(BUILD)/bench/stall_bench
	@mkdir -p $(BUILD)/bench
	@$(BUILD)/bench/stall_bench $(BUILD)/bench $(STALL_OPTIONS) >$(BUILD)/bench/stall.json
	@sed 's/"rates".*//' $(BUILD)/bench/stall.json
# Latches and allocators, builds of several kinds in turns: $(BUILD)/bench/latch.json.
bench-latch:
	+@BUILD=$(BUILD) CC='$(CC)' bench/latch.sh
# B-link splits against the classic index latch; ROWS=150000 ROUNDS=5 MIXED_ROUNDS=3.
# A build with timed latches finds out what of an insert is serial.
bench-blink: $(BUILD)/bench/blink_bench
	@mkdir -p $(BUILD)/bench
	+@$(MAKE) --no-print-directory LATCH=timed BUILD=$(BUILD)/timed $(BUILD)/timed/bench/blink_bench \
		>/dev/null
	@$(BUILD)/timed/bench/blink_bench $(BUILD)/bench serial
	@$< $(BUILD)/bench
# Beside LMDB, Berkeley DB, RocksDB, SQLite: $(BUILD)/bench/engines.json.
bench-engines:
	+@BUILD=$(BUILD) CC='$(CC)' bench/engines.sh
# Large directories through the core; ENTRIES=1000000 (the long form: 10000000):
# $(BUILD)/bench/dirs.json.
bench-dirs: $(BUILD)/bench/dirs
	@$< $(BUILD)/bench
# Metadata operations beside backups and with the log archived: $(BUILD)/bench/backup.json.
bench-backup: all $(BUILD)/bench/meta
	@BUILD=$(BUILD) bench/backup.sh
