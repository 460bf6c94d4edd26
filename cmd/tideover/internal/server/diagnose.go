package server

import (
	"github.com/tideover/tideover/cmd/tideover/internal/api"
	"github.com/tideover/tideover/cmd/tideover/internal/doctor"
	"github.com/tideover/tideover/engine/journal"
)

// diagnose is what the doctor says of this server, for whoever asks it.
func (s *server) diagnose() api.Diagnosis {
	cfg := s.config()
	d := api.Diagnosis{Engine: "the folder " + cfg.Server.Data}
	folder := doctor.Folder{Path: cfg.Server.Data, Keeps: s.cluster == nil, Lazy: cfg.Server.Durability == "os"}
	d.Findings = append(folder.Check(), s.findings()...)
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
