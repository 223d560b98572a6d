/* An access control list in the kernel's form, for tests that only need one. */
#ifndef BLINKFS_TESTS_ACL_EXAMPLE_H
#define BLINKFS_TESTS_ACL_EXAMPLE_H

#define ACL_ACCESS_NAME "system.posix_acl_access"
#define ACL_DEFAULT_NAME "system.posix_acl_default"

/* rwx for the owner, rw for user 1000, rx for the owning group, all that the mask lets, r. */
#define ACL_EXAMPLE(mask)                                                                          \
	{                                                                                          \
		2, 0, 0, 0, /* version */                                                          \
		0x01, 0, 7, 0, 255, 255, 255, 255,      /* owner */                                \
		0x02, 0, 6, 0, 232, 3, 0, 0,            /* user 1000 */                            \
		0x04, 0, 5, 0, 255, 255, 255, 255,      /* owning group */                         \
		0x10, 0, (mask), 0, 255, 255, 255, 255, /* mask */                                 \
		0x20, 0, 4, 0, 255, 255, 255, 255,      /* others */                               \
	}

#endif
