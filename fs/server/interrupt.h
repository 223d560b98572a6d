/* Commands that run long end in order when the user has had enough of them. */
#ifndef BLINKFS_SERVER_INTERRUPT_H
#define BLINKFS_SERVER_INTERRUPT_H

#include <stdbool.h>

/* From here on SIGINT, SIGTERM and SIGHUP are only noted; a sleep() ends early. */
void interrupt_catch(void);
bool interrupted(void);

#endif
