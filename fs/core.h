/*
 * The file system core: POSIX semantics over the engine, without a mount.
 *
 * Tests, mkfs and fsck may call it as the server does.  Permission checks are
 * the caller's (the kernel does them under default_permissions); the rules of
 * the namespace, sizes, links, times and errors are kept here.
 *
 * Every call names a view first: which state of the volume it sees.  VIEW_BASE
 * is the volume itself, and the only one so far; another is -EOPNOTSUPP.
 *
 * Locks: rename lock, inode locks in ascending ino, range locks (rank.def).
 * INV-LOCK-1: names are looked up, the inodes then locked in order, the names
 * looked up again under the locks; on a difference everything is let go and
 * the operation starts anew.
 *
 * Attributes are read from the inode's record whenever needed: there is no
 * second copy that could be stale.  An in-memory inode holds only locks and
 * look-up counts.
 *
 * All results are 0 or a negative errno (public form).  Any thread may call;
 * calls may wait, and nothing is held on return.
 */
#ifndef BLINKFS_FS_CORE_H
#define BLINKFS_FS_CORE_H

#include "engine/volume.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>

struct core;

typedef uint32_t view_t;
#define VIEW_BASE 0u

/* Who asks: owner of new inodes. */
struct core_cred {
	uint32_t uid, gid;
	uint32_t umask; /* taken off the mode, unless the directory has a default ACL */
};

int core_open(struct core **out, struct volume *volume) must_check;
/*
 * Counts every look-up as forgotten (so orphans go to purge); does not close
 * the volume.
 */
void core_close(struct core *core);
struct volume *core_volume(struct core *core);

/* ---------------------------------------------------------------- inodes */

struct core_attr {
	uint64_t ino;
	uint32_t mode, nlink, uid, gid, rdev;
	uint32_t flags; /* enum core_flags */
	uint64_t size, blocks_512, change;
	struct timespec atime, mtime, ctime, btime;
	bool links_settled; /* see INV-INODE-5: the kernel may cache nlink */
};

/*
 * Look-up counts: the calls marked (+1) raise the inode's count; core_forget()
 * lowers it.  An inode without names lives until its count is zero.
 */
int core_lookup(struct core *core, view_t view, uint64_t parent, const char *name, size_t name_len,
		struct core_attr *attr) must_check; /* (+1) "." and ".." included */
void core_forget(struct core *core, uint64_t ino, uint64_t count);
int core_getattr(struct core *core, view_t view, uint64_t ino, struct core_attr *attr) must_check;

enum core_set {
	CORE_SET_MODE = 1, CORE_SET_UID = 2, CORE_SET_GID = 4, CORE_SET_SIZE = 8,
	CORE_SET_ATIME = 16, CORE_SET_MTIME = 32, CORE_SET_CTIME = 64,
	CORE_SET_ATIME_NOW = 128, CORE_SET_MTIME_NOW = 256,
	CORE_KILL_SUID = 512, /* drop setuid, and setgid where group-executable */
	CORE_SET_KEPT_TIMES = 1024, /* times, if any, are of accepted writes: flags allow them */
	CORE_OUTSIDER = 2048, /* not of the file's group: KILL_SUID drops setgid in any case */
};
/*
 * Applies the fields named in `set` of *attr; returns the result in *attr.
 * Size: truncate (EFBIG, EISDIR, EINVAL).
 */
int core_setattr(struct core *core, view_t view, uint64_t ino, unsigned set,
		 struct core_attr *attr) must_check;

/*
 * What chattr(1) sets.  IMMUTABLE: nothing about the inode changes, no name of it
 * comes or goes; in a directory no name does.  APPEND: the bytes below a file's
 * size stay, and its attributes and names; a directory only gains names.  -EPERM.
 * A new inode has NODUMP and NOATIME of its directory.  Who may set which is the
 * caller's to check.
 */
enum core_flags {
	CORE_FLAG_IMMUTABLE = 1, CORE_FLAG_APPEND = 2, CORE_FLAG_NODUMP = 4, CORE_FLAG_NOATIME = 8,
};
int core_set_flags(struct core *core, view_t view, uint64_t ino, unsigned flags) must_check;
/* Has any inode of the volume been immutable or append-only, as far back as is known? */
bool core_flags_used(struct core *core);

/*
 * fallocate(2): blocks for [offset, offset + len), which read as zeros; with PUNCH_HOLE
 * (and KEEP_SIZE) a hole there, with ZERO_RANGE zeros that have blocks.  The size grows
 * to the end of the range unless KEEP_SIZE.  EOPNOTSUPP, EFBIG, EISDIR, EINVAL; on ENOSPC
 * part of the range may have its blocks, and ZERO_RANGE its zeros.
 */
enum core_fallocate_mode {
	CORE_KEEP_SIZE = 1, CORE_PUNCH_HOLE = 2, CORE_ZERO_RANGE = 4,
	CORE_FALLOCATE_KILL_SUID = 8, /* with any of them: see CORE_KILL_SUID */
	CORE_FALLOCATE_OUTSIDER = 16, /* see CORE_OUTSIDER */
};
int core_fallocate(struct core *core, view_t view, uint64_t ino, unsigned mode, uint64_t offset,
		   uint64_t len) must_check;

/*
 * A READ, READDIR or READLINK reached the server: moves atime to now.  RELATIVE
 * only when it is not after mtime or ctime, or is a day old.  ctime stays.
 * Nothing happens on a read-only volume.
 */
enum core_atime { CORE_ATIME_RELATIVE, CORE_ATIME_STRICT };
int core_accessed(struct core *core, view_t view, uint64_t ino, enum core_atime policy) must_check;

/* ------------------------------------------------------------- namespace */

/*
 * All (+1) unless they fail.  mode includes S_IF*.  A setgid directory passes its
 * group on, and one with a default ACL that.
 */
int core_create(struct core *core, view_t view, const struct core_cred *cred, uint64_t parent,
		const char *name, size_t name_len, uint32_t mode, uint32_t rdev,
		struct core_attr *attr) must_check; /* mkdir, mknod, creat by S_IF* */
/*
 * A file without a name (O_TMPFILE), (+1): core_link() may give it one as long as
 * it is looked up; else it is reclaimed like any orphan.  `parent` is only who
 * hands its group on.  mode: permissions.
 */
int core_tmpfile(struct core *core, view_t view, const struct core_cred *cred, uint64_t parent,
		 uint32_t mode, struct core_attr *attr) must_check;
int core_symlink(struct core *core, view_t view, const struct core_cred *cred, uint64_t parent,
		 const char *name, size_t name_len, const char *target, size_t target_len,
		 struct core_attr *attr) must_check;
int core_link(struct core *core, view_t view, uint64_t ino, uint64_t parent, const char *name,
	      size_t name_len, struct core_attr *attr) must_check;

/* target has room for SYMLINK_BYTES_MAX + 1; NUL-terminated. */
int core_readlink(struct core *core, view_t view, uint64_t ino, char *target) must_check;
int core_unlink(struct core *core, view_t view, uint64_t parent, const char *name,
		size_t name_len) must_check;
int core_rmdir(struct core *core, view_t view, uint64_t parent, const char *name,
	       size_t name_len) must_check;
/*
 * EXCHANGE: both names exist, of whatever types, and change places in one step.
 * Both flags together, or any other: -EINVAL.
 */
enum core_rename_flags { CORE_RENAME_NOREPLACE = 1, CORE_RENAME_EXCHANGE = 2 };
int core_rename(struct core *core, view_t view, uint64_t old_parent, const char *old_name,
		size_t old_len, uint64_t new_parent, const char *new_name, size_t new_len,
		unsigned flags) must_check;
/*
 * The same, and in the same step a whiteout of `cred` takes the old name: a character
 * device 0:0 without permissions, by which overlayfs knows what was removed.  It is not
 * looked up.  Not together with EXCHANGE: -EINVAL.
 */
int core_rename_whiteout(struct core *core, view_t view, const struct core_cred *cred,
			 uint64_t old_parent, const char *old_name, size_t old_len,
			 uint64_t new_parent, const char *new_name, size_t new_len,
			 unsigned flags) must_check;

/* ----------------------------------------------------------- directories */

/*
 * Calls `emit` for entries whose cookie is above `cookie`, in cookie order:
 * "." (cookie 1) and ".." (2) first.  emit returns 0 to go on, 1 when full (that
 * entry does not count as delivered).  attr is NULL unless with_attr; with
 * attributes each accepted entry but "." and ".." has been looked up (+1).
 */
struct core_dirent {
	const char *name;
	size_t name_len;
	uint64_t ino, cookie;
	uint32_t type; /* S_IF* */
	const struct core_attr *attr;
};
typedef int (*core_emit)(void *arg, const struct core_dirent *entry);
int core_readdir(struct core *core, view_t view, uint64_t ino, uint64_t cookie, bool with_attr,
		 core_emit emit, void *arg) must_check;

/* ---------------------------------------------------------------- contents */

/* *done: bytes read; short only at the end of the file. */
int core_read(struct core *core, view_t view, uint64_t ino, uint64_t offset, void *buf, size_t len,
	      size_t *done) must_check;
enum core_write_flags {
	CORE_WRITE_KILL_SUID = 1,
	CORE_WRITE_APPEND = 2, /* offset is ignored: at the end of the file, atomically */
	CORE_WRITE_KEEP_TIMES = 4, /* the caller knows when it was written, and sets the times */
	CORE_WRITE_OUTSIDER = 8, /* see CORE_OUTSIDER */
};
/* Atomic for len <= WRITE_BYTES_MAX (larger: -EINVAL).  All or nothing. */
int core_write(struct core *core, view_t view, uint64_t ino, uint64_t offset, const void *buf,
	       size_t len, unsigned flags) must_check;
/*
 * Copies, by sharing blocks where whole ones are concerned.  *done may be less
 * than len: at the end of the source, or because it is much.  -EINVAL: the ranges
 * overlap in one file.  Each piece is atomic, not the whole.
 */
int core_copy(struct core *core, view_t view, uint64_t ino_in, uint64_t offset_in,
	      uint64_t ino_out, uint64_t offset_out, uint64_t len, uint64_t *done) must_check;
/* whence: SEEK_DATA or SEEK_HOLE; -ENXIO past the end. */
int core_seek(struct core *core, view_t view, uint64_t ino, uint64_t offset, int whence,
	      uint64_t *out) must_check;
/*
 * For whoever acknowledges writes before core_write() has seen them, as a cache does:
 * it hears of a full volume too late.  So it notes the -ENOSPC of a late write, and asks
 * before it acknowledges the next: -ENOSPC as long as nothing has come free since, the
 * draining of purge and log included; else 0.  Both do nothing for an inode that is not
 * looked up.
 *
 * 1 instead of -ENOSPC: its attributes were not to be cached, so they may be asked for
 * without a write.  To be answered, and if they may be cached then, made stale after.
 */
void core_shortage_note(struct core *core, view_t view, uint64_t ino);
int core_shortage(struct core *core, view_t view, uint64_t ino) must_check;
/* Durable on return: everything that was acknowledged before (so its name as well). */
int core_fsync(struct core *core, view_t view, uint64_t ino, bool data_only) must_check;

/* ------------------------------------------------------------------ xattrs */

/*
 * system.posix_acl_access and system.posix_acl_default are access control lists
 * (acl.h): the first sets the mode's permissions, and is not kept when they say it
 * all.  -EINVAL: not a valid list; -EACCES: a default one for what is no directory;
 * -EOPNOTSUPP: for a symlink; -E2BIG: more entries than fit a record.
 * KILL_SGID: an access list takes setgid away (its setter is not of the group).
 */
enum core_xattr_flags { CORE_XATTR_CREATE = 1, CORE_XATTR_REPLACE = 2, CORE_XATTR_KILL_SGID = 8 };
/* -ENODATA, -EEXIST, -E2BIG (value above XATTR_VALUE_MAX), -ERANGE. */
int core_setxattr(struct core *core, view_t view, uint64_t ino, const char *name, const void *value,
		  size_t len, unsigned flags) must_check;
/* cap 0: *len only. */
int core_getxattr(struct core *core, view_t view, uint64_t ino, const char *name, void *value,
		  size_t cap, size_t *len) must_check;
/* NUL-terminated names one after the other. */
int core_listxattr(struct core *core, view_t view, uint64_t ino, char *list, size_t cap,
		   size_t *len) must_check;
int core_removexattr(struct core *core, view_t view, uint64_t ino, const char *name) must_check;

/* ------------------------------------------------------------------- whole */

/* In memory: inodes, and look-ups that have not been forgotten. */
void core_inode_counts(struct core *core, uint64_t *inodes, uint64_t *lookups);
/*
 * More than `limit` inodes in memory (0: no limit): `over` is called, and is to have
 * somebody ask core_inode_excess() how many should go and core_idle_inodes() which,
 * and have them forgotten.  Once; `over` only notes it, and may be called until
 * core_close() returns.
 */
void core_limit_inodes(struct core *core, uint64_t limit, void (*over)(void *arg), void *arg);
uint64_t core_inode_excess(struct core *core);
unsigned core_idle_inodes(struct core *core, uint64_t *inos, unsigned max); /* one caller */

int core_statfs(struct core *core, view_t view, struct statvfs *out) must_check;

#endif
