package filewatch

import "slices"

// Folders lists the folders that are watched for files, and the names in them.
func Folders(paths ...string) (folders, names []string) {
	p := placesOf(paths)
	for f := range p.folders {
		folders = append(folders, f)
	}
	for n := range p.names {
		names = append(names, n)
	}
	slices.Sort(folders)
	slices.Sort(names)
	return folders, names
}
