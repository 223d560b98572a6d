/* blinkfs scrub [start|status|cancel] DIR.  argv[0] is its name; the exit code. */
#ifndef BLINKFS_SERVER_SCRUB_H
#define BLINKFS_SERVER_SCRUB_H

int scrub_main(int argc, char **argv);

#endif
