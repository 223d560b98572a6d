/*
 * setuid and setgid of files that somebody writes to: who may keep which.  The kernel
 * leaves them to the server (rawinit.c), and says at most that its caller is not
 * privileged; of which groups he is it does not say.
 */
#ifndef BLINKFS_SERVER_SETID_H
#define BLINKFS_SERVER_SETID_H

#include "fs/server/server.h"

struct setid {
	bool any;      /* the inode has one of the bits */
	/* It has setgid without group execution, and the caller is not of its group. */
	bool outsider;
};

/* For a caller without privileges.  May block: /proc knows his groups. */
struct setid setid_of_node(fuse_req_t req, fuse_ino_t node);

#endif
