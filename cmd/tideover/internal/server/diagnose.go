package server

import (
	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/cmd/tideover/internal/doctor"
	"github.com/tideover/tideover/engine/journal"
)

// machineFindings are the findings of the doctor about the machine and the addresses.
func (s *server) machineFindings() []doctor.Finding {
	if s.engine == nil {
		return s.addresses.findings()
	}
	cfg := s.config()
	folder := doctor.Folder{Path: cfg.Server.Data, Keeps: s.cluster == nil, Lazy: cfg.Server.Durability == "os"}
	return append(folder.Check(), s.addresses.findings()...)
}

// diagnose returns all findings of the doctor about this server.
func (s *server) diagnose() control.Diagnosis {
	cfg := s.config()
	d := control.Diagnosis{Engine: "the folder " + cfg.Server.Data}
	d.Findings = s.machineFindings()
	for _, t := range s.engine.Warnings() {
		d.Findings = append(d.Findings, doctor.Finding{
			Severity: journal.Broken, What: t.What, Why: t.Error,
			Do: "repair the workflow or its schedule in the configuration, and start the run by hand if it must not wait for the next time",
		})
	}
	if s.cluster != nil {
		d.Engine = "the cluster " + cfg.Engine.Name
		d.Findings = append(d.Findings, doctor.Finding{
			Severity: journal.Note, What: "the NATS servers of the cluster were not asked", Why: "a server looks at its own machine only",
			Do: "run tideover doctor with the configuration of the server",
		})
	}
	return d
}
