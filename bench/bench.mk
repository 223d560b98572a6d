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

.PHONY: bench-log bench-mount bench-fio bench-recovery bench-stall bench-latch bench-backup
# Commits per second of the redo log, beside programs without one; ROUNDS=7.
# Results: $(BUILD)/bench/log.json.
bench-log: $(BUILD)/bench/log_bench
	@$< $(BUILD)/bench
# Beside ext4 and the floor; ROUNDS=5. Results: $(BUILD)/bench/mount.json.
bench-mount: all $(addprefix $(BUILD)/bench/,floor meta stream report)
	@BUILD=$(BUILD) bench/mount.sh
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
	+@BUILD=$(BUILD) CC=$(CC) bench/latch.sh
# Metadata operations beside backups and with the log archived: $(BUILD)/bench/backup.json.
bench-backup: all $(BUILD)/bench/meta
	@BUILD=$(BUILD) bench/backup.sh
