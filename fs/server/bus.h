/*
 * A mapped redo log (-o log_mode=mapped) whose medium fails, or whose file somebody makes
 * shorter, is a signal at the instruction that touches it.
 *
 *	INV-BUS-1  the server then ends at once, with a message that says so; what is
 *	           durable stays so, as after kill -9
 *
 * Nothing goes on behind such a place: an append may be half done, with latches held.
 */
#ifndef BLINKFS_SERVER_BUS_H
#define BLINKFS_SERVER_BUS_H

/* From here on; `volume` is named in the message, and stays valid. */
void bus_catch(const char *volume);

#endif
