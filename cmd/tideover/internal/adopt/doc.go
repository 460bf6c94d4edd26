// Package adopt finds sessions of assistants that stopped at a limit, in the records that the
// assistants write themselves. It only reads these records.
//
// A session may be adopted only if the last entry of its record is a limit, no process has it open,
// and nothing came after: see [Session.LeftAlone]. In doubt a session is left alone.
package adopt
