/*
 * A full volume, and writes that were acknowledged before anybody asked us.
 *
 *	write-back: -ENOSPC -> core_shortage_note()   what was available then is kept
 *	next write: core_shortage()                   has that become more?
 *	                no: purge, flush, mark and checkpoint are drained, once more
 *	                no: -ENOSPC, and the note stays
 *	                yes: 0, and the note goes; should it not be enough, it comes back
 *
 * Who asks is the kernel, for attributes, and usually because a write made it look.  But
 * attributes that it was told not to cache (INV-INODE-5) it wants for a read past the
 * end, too, which must not fail.  So while it may hold such it is given settled ones
 * first, which are made stale again: then only a write asks for them (INV-INODE-10).
 *
 * Only growth ends a shortage.  A smaller write than the one that failed might still
 * fit, but whoever goes on writing behind a hole in his file is served better by an error.
 * Each round of a writer that never stops ends with a note for more available blocks
 * than the last, so it does stop.
 */
#include "fs/core_internal.h"

/* The entry of an inode that is looked up, or a fresh one, which goes with its pin. */
static struct inode *pin(struct core *core, view_t view, uint64_t ino)
{
	struct inode *inode;

	if (core_view(view) || inode_pin(&core->table, ino, &inode))
		return NULL;
	return inode;
}

void core_shortage_note(struct core *core, view_t view, uint64_t ino)
{
	struct inode *inode = pin(core, view, ino);

	if (!inode)
		return;
	atomic_store(&inode->shortage, core_available(core) + 1);
	inode_unpin(&core->table, inode);
}

/* INV-INODE-10: must the one who asks be a writer? */
static bool asks_for_write(struct core *core, struct inode *inode)
{
	uint64_t changed = atomic_load(&inode->links_changed);

	if (changed == 0 || atomic_load(&inode->attr_kept) > changed)
		return true;
	if (inode_links_settled(&core->table, inode->ino))
		atomic_store(&inode->attr_kept, os_mono_ns());
	return false;
}

int core_shortage(struct core *core, view_t view, uint64_t ino)
{
	struct inode *inode = pin(core, view, ino);
	uint64_t noted;
	int rc = 0;

	if (!inode)
		return 0;
	noted = atomic_load(&inode->shortage);
	if (noted == 0 || atomic_load(&core->volume->failed))
		goto out;
	if (core_available(core) < noted) {
		(void)core_drained(core);
		if (core_available(core) < noted)
			rc = asks_for_write(core, inode) ? -ENOSPC : 1;
	}
	/* A note that another write-back has made meanwhile stays. */
	if (rc == 0)
		atomic_compare_exchange_strong(&inode->shortage, &noted, 0);
out:
	inode_unpin(&core->table, inode);
	return rc;
}
